"""The load of the GPUs and the CPU, read once a second in a thread."""
