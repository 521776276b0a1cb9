"""Which engine generates replies, and the engine's options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """Which engine generates replies. `kind` is "auto", "decoder", "transformers" or "vllm". `arguments` are passed to
    vLLM's server; `share` is the fraction of GPU memory that this server uses while it generates (None: its
    default)."""

    kind: str = "auto"
    arguments: tuple[str, ...] = ()
    share: float | None = None
