"""The parts of the session host: its socket, its queue, its logs and its warm workers."""
