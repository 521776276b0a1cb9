"""Scans: run the user's program under a recorder, which times the calls of its modules and keeps their inputs, and rank
its module classes."""
