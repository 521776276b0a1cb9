"""The judge's side of the connection to a runner: the runner's process, and the memory that judge and runner share."""
