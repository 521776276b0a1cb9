"""Chat formats: they turn a conversation into tokens."""
