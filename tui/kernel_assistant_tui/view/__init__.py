"""What is known of a job, folded from its events. Pure: no terminal, no files."""
