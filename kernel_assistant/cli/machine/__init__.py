"""Commands for this machine: settings, what is missing, the session host."""
