"""The state of a job, computed from its events. Pure: no terminal, no files."""
