"""Training of the kernel-writing model. Empty in this version: the package holds its place in the layout."""
