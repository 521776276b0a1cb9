"""Indices that a candidate may choose: any of values that are as good up to rounding, and no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant.worker.opening.reference64 import float64_arithmetic
from kernel_assistant.worker.verifying import choice_bounds
from kernel_assistant.worker.verifying.cases import Case
from kernel_assistant.worker.verifying.choice_bounds import compare_choice
from kernel_assistant.worker.verifying.choices import Choice, paired, watched
from kernel_assistant.worker.verifying.verification import ExpectedOutputs, IncorrectOutput, WorstErrors, check_outputs

#: An integer output behind an operator that chooses, as `watched` looks for it.
CHOOSING = {"inputs": [], "nodes": [{"name": "out", "op": "argmax", "spec": {"dtype": "i64"}}], "outputs": ["out"]}
GAP = 1e-3


@dataclass(frozen=True)
class Chooses:
    """An operator on the rows of a matrix: its indices, and whether it promises which of equal values it takes."""

    call: Callable[[torch.Tensor], torch.Tensor]
    promises: bool = False


OPERATORS = {
    "argmax": Chooses(lambda x: x.argmax(-1), True),
    "argmin": Chooses(lambda x: x.argmin(-1, keepdim=True), True),
    "argmax of all": Chooses(lambda x: x.argmax(), True),
    "max": Chooses(lambda x: x.max(-1).indices, True),
    "min": Chooses(lambda x: x.min(-1, keepdim=True)[1].squeeze(-1), True),
    "cummax": Chooses(lambda x: x.cummax(-1).indices, True),
    "topk": Chooses(lambda x: x.topk(3, -1).indices),
    "sort": Chooses(lambda x: x.sort(-1, descending=True).indices),
    "stable sort": Chooses(lambda x: x.sort(dim=-1, stable=True).indices, True),
    "argsort": Chooses(lambda x: torch.argsort(x, dim=-1)),
    "kthvalue": Chooses(lambda x: x.kthvalue(2, -1).indices),
    "median": Chooses(lambda x: x.median(-1).indices),
    "mode": Chooses(lambda x: x.mode(-1).indices),
}


def _choice(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> tuple[torch.Tensor, Choice | None]:
    """PyTorch's indices for a matrix, and the choice that the judge sees in them."""
    (reference,), picked = watched(CHOOSING, lambda: (function(x),))
    with float64_arithmetic():
        _, exact = watched(CHOOSING, lambda: (function(x.double()),))
    return reference, paired(picked, exact)[0]


def _accepts(got: torch.Tensor, choice: Choice | None) -> bool:
    assert choice is not None
    return compare_choice(got, choice).passed


def _computed(x: torch.Tensor) -> torch.Tensor:
    """Values with rounding errors, in the order of `x`."""
    return (x / 3).tanh() * 3


def _near_ties() -> torch.Tensor:
    """Rows of eight values, each GAP or more apart, but for one that comes twice with another last digit."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.stack([torch.randperm(8, generator=generator) for _ in range(32)]) * GAP * 100 + 0.1
    top = rows.argmax(-1, keepdim=True)
    other = (top + 1) % 8
    rows.scatter_(-1, other, rows.gather(-1, top) * (1 + 2**-23))
    return rows


def test_integers_that_float64_does_not_hold_are_told_apart() -> None:
    x = torch.tensor([[2**53, 2**53 + 1, 5], [7, -(2**62), 2**62]])
    reference, choice = _choice(lambda x: x.argmax(-1), x)
    assert reference.tolist() == [1, 2] and _accepts(reference, choice)
    assert not _accepts(torch.tensor([0, 2]), choice)


def test_errors_are_found_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row has its own bound, in whichever piece it is."""
    monkeypatch.setattr(choice_bounds, "CHUNK", 24)
    x = _near_ties()
    for values, dim in ((x, -1), (x.T.contiguous(), 0), (x[0], 0)):
        _, choice = _choice(lambda x, dim=dim: _computed(x).argmax(dim), values)  # type: ignore[misc]
        order = values.sort(dim).indices
        assert [_accepts(order.select(dim, place), choice) for place in (-1, -2, -3)] == [True, True, False]


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=20)
@given(data=st.data())
def test_only_as_good_a_value_passes(name: str, data: st.DataObject) -> None:
    """Drawn values with ties, computed with and without rounding: an index passes if it is PyTorch's, or if its value
    is as good and no order is promised. Everything else is refused: a smaller value, no index at all."""
    operator, computed = OPERATORS[name], data.draw(st.booleans())
    values = data.draw(st.lists(st.integers(0, 5), min_size=24, max_size=24))
    x = torch.tensor(values, dtype=torch.float32).reshape(4, 6) * 0.3 + 0.1
    before = _computed if computed else torch.Tensor.neg
    reference, choice = _choice(lambda x: operator.call(before(x)), x)
    assert _accepts(reference, choice) and choice is not None
    got = reference.flatten().clone()
    place, index = data.draw(st.integers(0, got.numel() - 1)), data.draw(st.integers(-2, 40))
    got[place] = index
    rows = choice.exact.reshape(-1, choice.exact.shape[-1])
    number, chosen = place * len(rows) // got.numel(), int(reference.flatten()[place])
    row, beside = rows[number], got.reshape(len(rows), -1)[number]
    alike = 0 <= index < row.numel() and bool(row[index] == row[chosen])
    may_choose = alike and not operator.promises and int((beside == index).sum()) == 1
    assert _accepts(got.reshape(reference.shape), choice) == (index == chosen or may_choose)


def test_an_index_out_of_range_always_the_first_and_off_by_one_are_refused() -> None:
    reference, choice = _choice(lambda x: _computed(x).argmax(-1), _near_ties())
    for wrong in (-1, 8, 1 << 40, -(1 << 62)):
        got = reference.clone()
        got[5] = wrong
        assert not _accepts(got, choice)
    assert not _accepts(torch.zeros_like(reference), choice)
    assert not _accepts((reference + 2) % 8, choice)


def test_no_element_is_chosen_twice() -> None:
    """Two values within rounding of each other may change places, but not be the same."""
    x = _near_ties()
    reference, choice = _choice(lambda x: _computed(x).topk(2, -1).indices, x)
    assert _accepts(reference.flip(-1), choice)
    assert not _accepts(reference[:, :1].expand(-1, 2).contiguous(), choice)


def test_values_without_rounding_leave_no_choice() -> None:
    """The inputs themselves, or integers: whoever takes the second largest compared in lower precision."""
    x = _near_ties()
    second = x.sort(-1).indices[:, -2]
    for function in (lambda x: x.argmax(-1), lambda x: (x * 2).argmax(-1), lambda x: (x * 1e4).long().argmax(-1)):
        reference, choice = _choice(function, x)
        assert _accepts(reference, choice)
        assert not _accepts(second, choice)


def test_one_row_s_large_errors_excuse_no_other_row() -> None:
    x = torch.tensor([[1e6, 3e6, 2e6], [0.3, 0.1, 0.2]])
    reference, choice = _choice(lambda x: (x * 1.1 + 0.7).argmax(-1), x)
    assert not _accepts(torch.tensor([1, 2]), choice)
    assert _accepts(reference, choice)


def test_what_is_computed_from_indices_is_no_choice() -> None:
    """It has to be exact, as before."""
    x, table = _near_ties(), torch.arange(8) * 7
    for function in (
        lambda x: table[_computed(x).argmax(-1)],
        lambda x: _computed(x).argmax(-1) + 1,
        lambda x: _computed(x).argmax(-1).add_(1),
        lambda x: _computed(x).topk(2, -1).indices[:, 0],
        lambda x: _computed(x).topk(2, -1).indices.T,
        lambda x: _computed(x).argmax(-1).to(torch.int32),
    ):
        assert _choice(function, x)[1] is None


def test_values_that_change_behind_the_choice_are_not_looked_at() -> None:
    def changed(x: torch.Tensor) -> torch.Tensor:
        values = _computed(x)
        index = values.argmax(-1)
        values.zero_()
        return index

    assert _choice(changed, _near_ties())[1] is None


def test_a_wrong_index_is_told_from_the_one_that_is_due():
    """At a tie, the index in float64 may be the candidate's although the module in its own dtype gives another one."""
    reference, in_float64 = torch.tensor([3, 7]), torch.tensor([3, 5])
    expected = ExpectedOutputs(Case(0, "declared", None, 0), [], [reference], [in_float64], {}, {})
    plan = {"outputs": [{"name": "out0"}]}
    check_outputs(plan, [reference.clone()], expected, "kernelbench", WorstErrors())
    with pytest.raises(IncorrectOutput, match=r"out0\[1\] got 5 want 7"):
        check_outputs(plan, [in_float64.clone()], expected, "kernelbench", WorstErrors())
