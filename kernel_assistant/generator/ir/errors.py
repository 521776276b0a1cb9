"""The error for graphs that the generator cannot write. Its message is the reason that `classify` returns."""

from __future__ import annotations


class Unsupported(Exception):
    """The graph or the schedule is outside what the generator writes; the message is one line."""
