"""Elements at which the module magnifies rounding: as far off as PyTorch itself is right there, and nowhere else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernel_assistant.worker.verifying.numerics import MOST_PLACES, compare
from kernel_assistant.worker.verifying.sensitivity import moves_as_far

COUNT = 1 << 20
#: The logarithm of the second value is that of a difference of 1.2e-7, which one rounding doubles or makes nothing.
VALUES = torch.full((COUNT,), 1.5)
VALUES[1] = 1.0 + 2**-22


def logarithm(x: torch.Tensor) -> torch.Tensor:
    return torch.log((x - 1.0).clamp_min(1e-7))


TASK: Any = SimpleNamespace(call=lambda *args: (logarithm(*args),), unflatten=tuple)


@pytest.mark.parametrize(
    ("place", "off", "right"), [(1, 0.3, True), (1, 5.0, False), (7, 0.3, False), (7, 1e-5, False)]
)
def test_only_what_pytorch_itself_does_not_know(place: int, off: float, right: bool) -> None:
    want = logarithm(VALUES.double())[[place]]
    got = (want + off).float()
    assert moves_as_far(TASK, [VALUES], 0, got, want, [place]) is right


def test_integers_are_not_rounded() -> None:
    task: Any = SimpleNamespace(call=lambda x: (x.double().log(),), unflatten=tuple)
    ones = torch.ones(8, dtype=torch.int64)
    assert not moves_as_far(task, [ones], 0, torch.full((1,), 0.1), torch.zeros(1).double(), [3])


@pytest.mark.parametrize(("wrong", "named"), [(3, True), (MOST_PLACES, True), (MOST_PLACES + 1, False)])
def test_places_are_named_where_they_are_few(wrong: int, named: bool) -> None:
    want = torch.randn(COUNT, generator=torch.Generator().manual_seed(1)).double()
    got = want.float()
    places = [number * 1001 for number in range(wrong)]
    got[places] += 0.01
    result = compare(got, want.float(), want, "kernelbench")
    assert (result.failures, list(result.places)) == (wrong, places if named else [])


def test_places_are_not_named_in_a_small_output_or_where_all_of_it_has_drifted() -> None:
    want = torch.ones(1000).double()
    few = want.float()
    few[3] += 0.01
    assert compare(few, want.float(), want, "kernelbench").places == ()
    drifted = torch.ones(COUNT) + 1.5e-4
    drifted[3] += 1.0
    assert compare(drifted, torch.ones(COUNT), torch.ones(COUNT).double(), "kernelbench").places == ()
