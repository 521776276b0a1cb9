"""The session host, called in threads."""
