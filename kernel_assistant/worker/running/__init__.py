"""The judge's end of a runner: the process, and the memory that both see."""
