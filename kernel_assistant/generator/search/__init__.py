"""Chooses the schedules that a search tries."""
