"""The error for graphs that the generator cannot write. Its message is the reason that `classify` returns."""

from __future__ import annotations


class Unsupported(Exception):
    """The generator cannot write kernels for this graph, or not with this schedule. The message is one line."""
