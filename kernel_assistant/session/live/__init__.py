"""The Python call: tasks from live modules, and kernels in the caller's process."""
