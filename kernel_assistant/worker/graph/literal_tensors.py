"""Tensors that `forward` makes of numbers, such as `torch.tensor(0.5)`: written as nodes of the graph, because no
module holds them, from which an applied kernel could read them.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch

#: How torch.export begins the name of a tensor that is no attribute of the module.
PREFIX = "lifted_tensor_"
#: Most runs of equal values of a tensor that is written as nodes, and most values.
MOST_RUNS, MOST_VALUES = 64, 1 << 20


def runs_of(value: torch.Tensor) -> list[tuple[Any, int]] | None:
    """The values in their order, each with how often it comes in a row; None if there are too many to be written."""
    if value.numel() > MOST_VALUES:
        return None
    flat = value.detach().cpu().reshape(-1).tolist()
    runs = [(same[0], len(same)) for _, group in groupby(flat, key=repr) for same in [list(group)]]
    return runs if len(runs) <= MOST_RUNS else None
