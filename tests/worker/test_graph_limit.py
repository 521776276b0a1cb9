"""Tests which calls of PyTorch count against the limit of a graph."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from kernel_assistant.worker.graph.graph_limit import MOST_CALLS, CallLimit, GraphTooLarge


class Reads(nn.Module):
    def __init__(self, attribute: str) -> None:
        super().__init__()
        self.attribute = attribute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(MOST_CALLS + 1):
            getattr(x, self.attribute)
        return x


@pytest.mark.parametrize(("attribute", "counts"), [("mT", True), ("real", True), ("shape", False), ("dtype", False)])
def test_attributes_count_if_they_are_operators(attribute: str, counts: bool) -> None:
    model = Reads(attribute)
    with pytest.raises(GraphTooLarge) if counts else nullcontext(), CallLimit(model):
        model(torch.ones(2, 3))
