"""Running totals of valid events along time, as used by survival and point-process models."""

from __future__ import annotations

import torch
from torch import nn


class MaskedCumsum(nn.Module):
    """Cumulative sum of softplus rates over time, with missing steps counted as zero.

    Args of ``forward``:
        rates: unconstrained rates, ``(series, steps)``.
        observed: 1 where a step was observed and 0 where it is missing, ``(series, steps)``.
    """

    def __init__(self, step: float = 0.5) -> None:
        super().__init__()
        self.step = step

    def forward(self, rates: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
        intensity = nn.functional.softplus(rates) * observed
        return torch.cumsum(intensity, dim=-1) * self.step


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2048, 1024), (torch.rand(2048, 1024) < 0.8).float()]
