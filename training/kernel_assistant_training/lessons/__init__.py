"""Lessons: planned replies, right ones, slow ones and ones with a mistake. Pure."""
