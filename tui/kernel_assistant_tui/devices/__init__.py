"""What the GPUs and the CPU are doing, read once a second in a thread."""
