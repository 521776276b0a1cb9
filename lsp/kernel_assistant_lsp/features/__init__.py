"""One file for each feature. The functions take a snapshot and records, and do not wait for other processes."""
