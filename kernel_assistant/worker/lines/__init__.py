"""Measures the time of each line of a module's forward."""
