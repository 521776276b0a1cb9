"""Operators of a graph as expressions over loops, one rule an operator."""
