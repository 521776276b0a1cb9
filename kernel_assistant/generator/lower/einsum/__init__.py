"""Writes `einsum` as steps of two operands."""
