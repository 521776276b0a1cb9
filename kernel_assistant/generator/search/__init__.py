"""Chooses the schedules to try."""
