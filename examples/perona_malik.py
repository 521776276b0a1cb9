"""Edge-preserving smoothing of images (Perona and Malik 1990), one explicit step of the diffusion."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class PeronaMalik(nn.Module):
    """``(batch, channels, height, width)`` in and out; nothing flows through the border.

    Args:
        contrast: differences of neighbours well above this are edges and stay.
        rate: length of the step in time, at most 0.25.
    """

    def __init__(self, contrast: float = 0.1, rate: float = 0.2) -> None:
        super().__init__()
        self.contrast = contrast
        self.rate = rate

    def flow(self, difference: torch.Tensor) -> torch.Tensor:
        return difference * torch.exp(-((difference / self.contrast) ** 2))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        padded = F.pad(image, (1, 1, 1, 1), mode="replicate")
        north = self.flow(padded[..., :-2, 1:-1] - image)
        south = self.flow(padded[..., 2:, 1:-1] - image)
        west = self.flow(padded[..., 1:-1, :-2] - image)
        east = self.flow(padded[..., 1:-1, 2:] - image)
        return image + self.rate * (north + south + west + east)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(4, 3, 384, 384)]
