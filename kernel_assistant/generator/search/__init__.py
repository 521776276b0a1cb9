"""The schedules to try."""
