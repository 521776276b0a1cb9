"""Starts jobs and follows them to their ends, on this machine or another."""
