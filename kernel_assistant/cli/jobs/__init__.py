"""Commands for jobs that were submitted: list, watch, stop, report, confirm."""
