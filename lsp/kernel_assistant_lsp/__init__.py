"""Language server front end of kernel-assistant. Empty in this version: the package holds its place in the layout."""
