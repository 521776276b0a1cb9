"""Calls the session host from threads."""
