"""Loop nests as kernels in C++ and CUDA."""
