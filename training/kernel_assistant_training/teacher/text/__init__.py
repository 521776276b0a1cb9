"""The pieces of an answer as text: expressions, terms, sizes."""
