"""How strongly the policy is held to the one that the stage began with."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class KlControl:
    """`coefficient` of the KL in the loss. With a `target` (nats a token) it follows what is measured, by at most a
    fifth a step towards its goal; `horizon` counts actions. Ziegler et al. 2019, arXiv:1909.08593, section 2.2."""

    coefficient: float = 0.01
    target: float | None = None
    horizon: int = 1_000_000

    def after(self, measured: float, count: int) -> KlControl:
        """The control behind an update of `count` actions in which the KL was `measured`."""
        if self.target is None or count <= 0:
            return self
        error = min(max(measured / self.target - 1, -0.2), 0.2)
        return replace(self, coefficient=self.coefficient * (1 + error * min(count / self.horizon, 1.0)))
