"""The evaluation pool: evaluation hosts, their workers, and one queue of candidates."""
