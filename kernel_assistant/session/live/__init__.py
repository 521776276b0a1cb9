"""The Python functions of the package, for callers with a live module: `optimize` makes a task of it, `accelerated`
runs kernels in the caller's process."""
