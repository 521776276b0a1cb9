"""The KL penalty that keeps the policy close to the one that the stage began with."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class KlControl:
    """`coefficient` of the KL in the loss. With a `target` (nats per token) the coefficient is adjusted to the measured
    KL, with the relative error limited to a fifth; `horizon` counts actions. Ziegler et al. 2019, arXiv:1909.08593,
    section 2.2."""

    coefficient: float = 0.01
    target: float | None = None
    horizon: int = 1_000_000

    def after(self, measured: float, count: int) -> KlControl:
        """The control after an update on `count` actions whose KL was `measured`."""
        if self.target is None or count <= 0:
            return self
        error = min(max(measured / self.target - 1, -0.2), 0.2)
        return replace(self, coefficient=self.coefficient * (1 + error * min(count / self.horizon, 1.0)))
