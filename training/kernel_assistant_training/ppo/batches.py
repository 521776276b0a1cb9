"""Trajectories as rows of tensors, in pieces that fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Self

import torch
from torch import Tensor

from kernel_assistant_training.ppo.trajectory import Said


@dataclass(frozen=True)
class Rows:
    """(B, T) each, padded at the end. `ids` of int64, `actions` of bool, `sampled` the log-probabilities that came with
    the actions and 0 elsewhere. `numbers` says which trajectory of the batch a row is."""

    ids: Tensor
    actions: Tensor
    sampled: Tensor
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, said: Sequence[Said], numbers: Sequence[int], device: torch.device) -> Self:
        """Rows for `said[number]`."""
        length = max(len(said[number].ids) for number in numbers)
        shape = len(numbers), length
        ids, actions = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
        sampled = torch.zeros(shape)
        for row, number in enumerate(numbers):
            one = said[number]
            ids[row, : len(one.ids)] = torch.tensor(one.ids)
            for begin, count in one.spans:
                actions[row, begin : begin + count] = True
            sampled[row, actions[row]] = torch.tensor(one.logprobs)
        return cls(ids.to(device), actions.to(device), sampled.to(device), tuple(numbers))


def in_steps(lengths: Sequence[int], budget: int, steps: int, random: Random) -> list[list[list[int]]]:
    """The pieces of each of at most `steps` optimiser steps, none empty. Which step a trajectory is in is drawn: cut by
    length alone, one step would have the tasks with short answers, or the episodes that went wrong, and learn those."""
    order = random.sample(range(len(lengths)), len(lengths))
    count = min(steps, len(order))
    shares = [order[start::count] for start in range(count)]
    return [
        [[share[place] for place in piece] for piece in pieces([lengths[number] for number in share], budget)]
        for share in shares
    ]


def pieces(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Numbers of trajectories in groups of at most `budget` padded tokens, like lengths together. One that is longer
    than the budget has a group of its own."""
    groups: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        # The first of a group is its longest.
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= budget:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups
