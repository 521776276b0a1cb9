"""Draws how a tensor lies in memory: dimensions in any order, steps, expanded dimensions, an offset, windows that
overlap, and all of them mixed.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Layout:
    """A tensor of `shape`: `order` are its dimensions from the outermost in memory, `steps` every how many elements are
    taken, `expanded` the dimensions that hold one element, `offset` where it begins. With `windows` the last dimension
    is one of windows that overlap along the one before.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    steps: tuple[int, ...]
    expanded: frozenset[int]
    offset: int
    windows: bool

    def make(self, generator: torch.Generator) -> torch.Tensor:
        if self.windows:
            *outer, rows, size = self.shape
            return torch.randn(*outer, rows + size - 1, generator=generator).unfold(-1, size, 1)
        sizes = [1 if dim in self.expanded else self.shape[dim] * self.steps[dim] for dim in self.order]
        flat = torch.randn(self.offset + math.prod(sizes), generator=generator)
        placed = flat[self.offset :].view(sizes).permute([self.order.index(dim) for dim in range(len(self.shape))])
        return placed[tuple(slice(None, None, step) for step in self.steps)].expand(self.shape)


def drawn(shape: tuple[int, ...], chance: random.Random) -> Layout:
    """Any layout; each way to be no contiguous tensor is taken about every second time."""
    plain = tuple(range(len(shape)))
    return Layout(
        shape,
        order=tuple(chance.sample(plain, len(plain))) if chance.random() < 0.6 else plain,
        steps=tuple(chance.choice([1, 1, 2, 3]) for _ in plain) if chance.random() < 0.5 else (1,) * len(plain),
        expanded=frozenset(dim for dim in plain if chance.random() < 0.4) if chance.random() < 0.5 else frozenset(),
        offset=chance.choice([0, 1, 16]),
        windows=chance.random() < 0.15,
    )
