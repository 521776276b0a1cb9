"""Lowering rules of operators that move elements."""
