"""Answers for tasks with other loops: layout, scans, windows."""
