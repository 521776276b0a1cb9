"""Reads the load of the GPUs and the CPU, once a second in a thread."""
