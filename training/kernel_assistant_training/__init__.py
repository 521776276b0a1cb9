"""Training of the kernel-writing model."""
