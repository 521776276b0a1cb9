"""Writes kernels from templates, not from a loop nest: attention, linear layers, recurrences."""
