"""Commands for kernels in the user's files: apply, undo, check, count, export."""
