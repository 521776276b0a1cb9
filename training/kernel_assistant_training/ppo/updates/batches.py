"""Turns trajectories into padded tensors, in batches that fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Self

import torch
from torch import Tensor

from kernel_assistant_training.ppo.trajectory import ReplySpans


@dataclass(frozen=True)
class PaddedBatch:
    """A batch of trajectories as tensors (B, T), padded at the end: `ids` int64, `actions` bool, and `sampled`, the
    sampler's log-probabilities of the actions, 0 elsewhere. `numbers` has the index of each row's trajectory."""

    ids: Tensor
    actions: Tensor
    sampled: Tensor
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, reply_spans: Sequence[ReplySpans], numbers: Sequence[int], device: torch.device) -> Self:
        """Returns a batch that has a row `reply_spans[number]` for each of `numbers`."""
        length = max(len(reply_spans[number].ids) for number in numbers)
        shape = len(numbers), length
        ids, actions = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
        sampled = torch.zeros(shape)
        for row, number in enumerate(numbers):
            one = reply_spans[number]
            ids[row, : len(one.ids)] = torch.tensor(one.ids)
            for begin, count in one.spans:
                actions[row, begin : begin + count] = True
            sampled[row, actions[row]] = torch.tensor(one.logprobs)
        return cls(ids.to(device), actions.to(device), sampled.to(device), tuple(numbers))


def in_steps(lengths: Sequence[int], budget: int, steps: int, random: Random) -> list[list[list[int]]]:
    """Divides trajectories of these `lengths` among at most `steps` optimiser steps. Returns for each step its
    micro-batches of at most `budget` padded tokens, as lists of indices; no step is empty. Trajectories are assigned to
    steps at random: sorted by length, one step would contain all short answers or all failed episodes."""
    order = random.sample(range(len(lengths)), len(lengths))
    count = min(steps, len(order))
    shares = [order[start::count] for start in range(count)]
    return [
        [[share[index] for index in piece] for piece in pieces([lengths[number] for number in share], budget)]
        for share in shares
    ]


def pieces(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Divides trajectories of these `lengths` into groups of at most `budget` padded tokens and of similar lengths.
    Returns the groups as lists of indices. A trajectory that is longer than the budget gets a group of its own."""
    groups: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        # The first member of a group is its longest.
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= budget:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups
