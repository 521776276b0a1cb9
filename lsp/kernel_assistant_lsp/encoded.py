"""A result of a request that is encoded as JSON already, because encoding many lenses is slow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EncodedResult:
    """A result whose JSON `text` is sent to the client unchanged."""

    text: str
