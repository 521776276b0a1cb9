"""Nodes of a graph that a library computes."""
