"""Lessons: the replies that a teacher plans, right ones, slow ones and ones with a mistake. Pure."""
