"""Commands about this machine: settings, what is missing for optimizing, the session host."""
