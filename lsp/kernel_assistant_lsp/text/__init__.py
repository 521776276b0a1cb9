"""The open documents, the positions of their classes, and edits of their text."""
