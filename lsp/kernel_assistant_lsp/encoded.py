"""A result that is encoded as JSON already."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EncodedResult:
    """`text` is the JSON that is sent to the client unchanged."""

    text: str
