"""Operators of a graph as expressions over loops, with one rule for each operator."""
