"""Rewrites a graph into one that computes the same numbers, of all real inputs, with less work."""
