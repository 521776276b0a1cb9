"""Determines which elements of its operands an operator reads. The entry point is `rules.reads`."""
