"""Writes loop nests and templates as kernels in C++ and CUDA."""
