"""What an episode may use up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Limits of one episode. `seconds` is wall time for the search, which leaves the rest of a turn out; confirming
    comes on top, at most as long as the search took and ten seconds (docs/session.md).

    `target_speedup` over torch.compile (quick tier) ends the search early; None searches on. `patience` is how many
    turns may pass without a better candidate, `device_seconds` what verifying and profiling may take of the search.
    """

    seconds: float = 120.0
    turns: int = 200
    target_speedup: float | None = None
    patience: int = 8
    device_seconds: float = float("inf")
