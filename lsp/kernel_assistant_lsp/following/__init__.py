"""Starts jobs and follows them until they end, on this machine or another."""
