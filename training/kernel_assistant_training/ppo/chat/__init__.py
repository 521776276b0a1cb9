"""Chat formats: how a conversation becomes tokens."""
