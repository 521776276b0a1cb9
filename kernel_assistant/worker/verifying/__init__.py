"""Verifying a candidate: which inputs, and how close its results have to be."""
