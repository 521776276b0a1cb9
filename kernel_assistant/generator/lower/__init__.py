"""Turns the operators of a graph into expressions over loops, with one rule for each operator."""
