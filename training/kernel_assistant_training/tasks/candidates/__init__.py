"""Writes the sources of tasks, before they are filtered: crawled, composed of operators, or requested from a model."""
