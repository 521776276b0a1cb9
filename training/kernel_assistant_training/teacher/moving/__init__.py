"""Operators that move elements, as positions."""
