"""Lessons: sequences of planned replies for training conversations; each reply is correct, slow, or has a deliberate
mistake. Nothing here has side effects."""
