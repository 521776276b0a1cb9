"""The Python functions of the package, for callers that have an `nn.Module` instance in memory: `optimize` finds
kernels for it, `accelerated` runs a copy of it with kernels in the caller's process."""
