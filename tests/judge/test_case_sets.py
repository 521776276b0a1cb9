"""Shared memory for verifying that stays from candidate to candidate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.worker.verifying.case_sets import CaseSets
from kernel_assistant.worker.verifying.verification import ExpectedOutputs, IncorrectOutput
from tests.worker.opened import declared, module_text, open_text

SCALED = module_text(
    "return x * self.weight", "torch.rand(8, 16)", "self.weight = nn.Parameter(torch.full((16,), 3.0))"
)
PLAN: dict[str, Any] = {"outputs": [{"name": "product"}]}


@pytest.fixture
def expected(tmp_path: Path) -> ExpectedOutputs:
    return declared(open_text(tmp_path, SCALED))


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
