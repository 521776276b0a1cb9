"""Answers for tasks that are one loop nest."""
