"""Kernels that are written as a whole, not from a nest of loops."""
