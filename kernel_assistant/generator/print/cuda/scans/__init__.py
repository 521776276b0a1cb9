"""Writes cumulative sums, products and extremes for CUDA."""
