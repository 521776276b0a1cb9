"""Features of the editor, one file for each. The functions take a snapshot and records, and do not wait for other
processes."""
