"""Cumulative sums, products and extremes on CUDA."""
