"""The documents that are open, the positions of their classes, and edits."""
