"""The parts of the session host: its socket, its job queues, its event logs, and the workers that it keeps for the next
job."""
