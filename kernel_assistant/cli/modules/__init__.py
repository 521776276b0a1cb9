"""Commands that work on a module, a candidate or a program of the user: find slow code, search for kernels, verify,
time."""
