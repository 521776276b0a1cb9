"""Lessons: sequences of planned replies, each of which is correct, slow, or has a mistake. Without side effects."""
