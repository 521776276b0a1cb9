"""Loop nests: their loops, passes, and positions in memory."""
