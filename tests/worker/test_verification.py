"""The message about a wrong output."""

from __future__ import annotations

import pytest
import torch

from kernel_assistant.worker.verifying.cases import Case
from kernel_assistant.worker.verifying.verification import ExpectedOutputs, IncorrectOutput, WorstErrors, check_outputs


def test_a_wrong_index_is_told_from_the_one_that_is_due():
    """At a tie, the index in float64 may be the candidate's although the module in its own dtype gives another one."""
    reference, in_float64 = torch.tensor([3, 7]), torch.tensor([3, 5])
    expected = ExpectedOutputs(Case(0, "declared", None, 0), [], [reference], [in_float64], {}, {})
    plan = {"outputs": [{"name": "out0"}]}
    check_outputs(plan, [reference.clone()], expected, "kernelbench", WorstErrors())
    with pytest.raises(IncorrectOutput, match=r"out0\[1\] got 5 want 7"):
        check_outputs(plan, [in_float64.clone()], expected, "kernelbench", WorstErrors())
