"""Graphs that were traced beforehand, with the code that reads them."""
