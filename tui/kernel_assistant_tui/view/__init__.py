"""The state of a job as the terminal shows it, computed from the job's events. Pure functions: no terminal, no
files."""
