"""Features of the editor, one file for each. Most functions take a document's `Snapshot` and stored results; only
`ghost.py` waits for another process, the one with the model."""
