"""Tensors that `forward` makes of numbers, such as `torch.tensor(0.5)`: written as nodes of the graph, because no
module holds them, from which an applied kernel could read them.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch

from ..process.worker_errors import TaskError

#: How torch.export begins the name of a tensor that is no attribute of the module.
PREFIX = "lifted_tensor_"
#: Most runs of equal values that a tensor may have.
MOST_RUNS = 64


def runs_of(value: torch.Tensor) -> list[tuple[Any, int]]:
    """The values in their order, each with how often it comes in a row. Raises TaskError if there are too many."""
    flat = value.detach().cpu().reshape(-1).tolist()
    runs = [(same[0], len(same)) for _, group in groupby(flat, key=repr) for same in [list(group)]]
    if len(runs) > MOST_RUNS:
        raise TaskError(
            "unsupported_output",
            f"forward uses a tensor of {len(flat)} values that the module does not hold",
            "register it as a buffer in __init__",
        )
    return runs
