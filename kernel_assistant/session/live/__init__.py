"""The Python functions of the package: they make tasks from live modules, and run kernels in the caller's process."""
