"""What a wrong output is told to be."""

from __future__ import annotations

import pytest
import torch

from kernel_assistant.worker.cases import Case
from kernel_assistant.worker.verification import Errors, Expected, Wrong, check_outputs


def test_a_wrong_index_is_told_from_the_one_that_is_due():
    """At a tie the index in float64 may be the candidate's, and yet not that of the module in its own dtype."""
    reference, in_float64 = torch.tensor([3, 7]), torch.tensor([3, 5])
    expected = Expected(Case(0, "declared", None, 0), [], [reference], [in_float64], {}, {})
    plan = {"outputs": [{"name": "out0"}]}
    check_outputs(plan, [reference.clone()], expected, "kernelbench", Errors())
    with pytest.raises(Wrong, match=r"out0\[1\] got 5 want 7"):
        check_outputs(plan, [in_float64.clone()], expected, "kernelbench", Errors())
