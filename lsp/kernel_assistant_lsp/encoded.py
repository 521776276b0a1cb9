"""A result that is already encoded as JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EncodedResult:
    """A result whose JSON `text` is sent to the client unchanged."""

    text: str
