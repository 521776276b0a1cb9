"""Scans: running the user's program under the recorder, and ranking its module classes."""
