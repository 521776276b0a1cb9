"""The choice of the engine that generates replies, and its options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """`arguments` are passed to vLLM's server; `share` is the share of GPU memory that it uses while it generates."""

    kind: str = "auto"
    arguments: tuple[str, ...] = ()
    share: float | None = None
