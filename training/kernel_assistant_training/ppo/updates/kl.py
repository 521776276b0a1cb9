"""The KL penalty that keeps the policy close to the policy with which the stage began."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class KlControl:
    """Controls the KL penalty. `coefficient` is the weight of the KL in the loss. With a `target` (nats per token),
    each update moves the coefficient in the direction that brings the measured KL to the target; the relative error is
    limited to a fifth, and `horizon` is the number of actions after which the full error counts. Ziegler et al. 2019,
    arXiv:1909.08593, section 2.2."""

    coefficient: float = 0.01
    target: float | None = None
    horizon: int = 1_000_000

    def after(self, measured: float, count: int) -> KlControl:
        """Returns the control after an update on `count` actions, in which the KL `measured` (nats per token) was
        measured."""
        if self.target is None or count <= 0:
            return self
        error = min(max(measured / self.target - 1, -0.2), 0.2)
        return replace(self, coefficient=self.coefficient * (1 + error * min(count / self.horizon, 1.0)))
