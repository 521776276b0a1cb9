"""A clock that a test sets."""

from __future__ import annotations


class Moved:
    """Seconds as `time.monotonic` gives them."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds
