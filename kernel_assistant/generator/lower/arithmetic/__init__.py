"""Arithmetic on tensors and numbers of any dtypes, as PyTorch promotes and computes them."""
