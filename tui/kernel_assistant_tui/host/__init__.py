"""Calls the session host and reads the store, in threads."""
