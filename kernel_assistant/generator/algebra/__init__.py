"""Rewrites a graph so that it computes the same function of real numbers with less work."""
