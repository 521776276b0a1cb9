"""Shared memory for verifying that stays from candidate to candidate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.records.codec import to_builtins
from kernel_assistant.source import build_task
from kernel_assistant.worker.opening.open_task import open_task
from kernel_assistant.worker.verifying.case_sets import CaseSets
from kernel_assistant.worker.verifying.cases import Case
from kernel_assistant.worker.verifying.verification import ExpectedOutputs, IncorrectOutput, expect

SCALED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((16,), 3.0))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [torch.rand(8, 16)]
"""
PLAN: dict[str, Any] = {"outputs": [{"name": "product"}]}


@pytest.fixture
def expected(tmp_path: Path) -> ExpectedOutputs:
    path = tmp_path / "model.py"
    path.write_text(SCALED)
    task = open_task(to_builtins(build_task(str(path), target="cpu", numerics="kernelbench")), "cpu")
    found = expect(task, Case(0, "declared", None, 1))
    assert found is not None
    return found


def test_nothing_of_a_candidate_is_left_for_the_next(expected: ExpectedOutputs) -> None:
    sets = CaseSets(["x0"], keeps=True)
    with sets.of(PLAN, expected, often=True) as first:
        first.write(0, expected.tensors)
        first.outputs[0][0].fill_(7)
        first.readable.bytes.fill_(1)
    with sets.of({"outputs": [{"name": "another"}]}, expected, often=True) as second:
        assert second is first
        assert not second.inputs[0][0].any() and not second.outputs[0][0].any()
        (weight,) = second._constants
        assert torch.equal(weight, next(iter(expected.constants.values())))
    sets.close()


@pytest.mark.parametrize(("keeps", "often"), [(False, True), (True, False)])
def test_others_get_memory_of_their_own(expected: ExpectedOutputs, keeps: bool, often: bool) -> None:
    sets = CaseSets(["x0"], keeps=keeps)
    with sets.of(PLAN, expected, often=often) as first, sets.of(PLAN, expected, often=often) as second:
        assert second is not first
    sets.close()


def test_another_number_of_outputs_is_incorrect(expected: ExpectedOutputs) -> None:
    with pytest.raises(IncorrectOutput), CaseSets(["x0"], keeps=True).of({"outputs": []}, expected, often=True):
        pass
