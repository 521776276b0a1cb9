"""Commands for kernels in the user's files: apply, undo, check, counters, compare, export."""
