"""Lessons: planned replies, which are correct, slow, or have a mistake. Without side effects."""
