"""One file a request: thin functions on a snapshot and on records. Nothing here waits for anything."""
