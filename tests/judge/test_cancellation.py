"""An honest result for which PyTorch itself rounds more than the candidate: sums that nearly cancel, in bfloat16."""

from __future__ import annotations

import pytest

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Outcome, Tier
from tests.judge import kernels

#: Each logarithm is rounded to bfloat16 by PyTorch; their sum is near zero and another for all values.
MODULE = """
import torch
from torch import nn


class Divergence(nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.kl_div(torch.log(x), y, reduction="batchmean")


def get_inputs():
    return [torch.rand(64, 1024).softmax(-1).bfloat16(), torch.rand(64, 1024).softmax(-1).bfloat16()]
"""


#: Zero for equal inputs, and zeros are among those that the full tier tries. What is summed is not zero.
EQUAL = """
import torch
from torch import nn


class Divergence(nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.kl_div(torch.log_softmax(x, -1), torch.softmax(y, -1))


def get_inputs():
    return [torch.rand(64, 1000), torch.rand(64, 1000)]
"""


@pytest.mark.slow
def test_an_exact_zero_of_pytorch_asks_for_no_exact_zero(worker, cache):
    with kernels.environment(worker, cache, kernels.task(EQUAL, "Divergence")) as opened:
        candidates = [emit(opened.graph, one) for one in initial(opened.graph, "cpu", opened.device)[:2]]
        found = opened.evaluate(candidates, Tier.full)
    assert {each.outcome for each in found} == {Outcome.correct}, [each.message for each in found]


@pytest.mark.slow
def test_float64_decides_while_timed_as_well(worker, cache):
    with kernels.environment(worker, cache, kernels.task(MODULE, "Divergence")) as opened:
        candidate = emit(opened.graph, initial(opened.graph, "cpu", opened.device)[0])
        outcomes = [opened.evaluate([candidate], tier)[0] for tier in (Tier.full, Tier.quick, Tier.full)]
    assert {each.outcome for each in outcomes} == {Outcome.correct}, [each.message for each in outcomes]
