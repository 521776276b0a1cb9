"""Loop nests: their loops, the passes over their reduced loops, and the memory accesses in them."""
