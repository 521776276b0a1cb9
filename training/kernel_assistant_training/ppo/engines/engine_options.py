"""Which engine generates replies, and the engine's options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """`kind` names the engine. `arguments` are passed to vLLM's server; `share` is the fraction of GPU memory that this
    server uses while it generates."""

    kind: str = "auto"
    arguments: tuple[str, ...] = ()
    share: float | None = None
