"""Commands for a module, a candidate or a program of the user: find slow code, search, verify, time."""
