"""Builds the loop nest of a kernel: its loops, the passes over the loops that it reduces, and the memory accesses in
them."""
