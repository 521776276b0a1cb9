"""Rotary position embeddings as in Llama (Su et al. 2021), for queries and keys at once."""

from __future__ import annotations

import torch
from torch import nn


class Rotary(nn.Module):
    """Turns pairs of features by an angle that grows with the position.

    ``query`` is ``(batch, heads, steps, features)``, ``key`` may have fewer heads. Returns both in a dictionary.
    """

    def __init__(self, features: int, longest: int = 2048, base: float = 10000.0) -> None:
        super().__init__()
        rates = base ** (-torch.arange(0, features, 2, dtype=torch.float64) / features)
        angles = torch.outer(torch.arange(longest), rates).repeat(1, 2)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    @staticmethod
    def turned(x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, dim=-1)
        return torch.cat([-right, left], dim=-1)

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> dict[str, torch.Tensor]:
        cos, sin = self.cos[: query.shape[2]], self.sin[: query.shape[2]]
        return {name: x * cos + self.turned(x) * sin for name, x in (("query", query), ("key", key))}


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 16, 1024, 64), torch.randn(2, 4, 1024, 64)]


def get_init_inputs() -> list[int]:
    return [64]
