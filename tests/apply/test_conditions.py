"""Tests that the described conditions of the guard are the ones that it checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.apply import AppliedOptions, apply_result
from kernel_assistant.apply.conditions import runs_when, written_provenances
from tests.apply.conftest import change


@pytest.mark.parametrize(
    ("options", "also"),
    [
        (AppliedOptions(), ()),
        (
            AppliedOptions(min_elements=100, compiled_parent="original"),
            ("at least 100 elements", "not where torch.compile compiles what calls it"),
        ),
    ],
)
def test_one_line_says_which_calls_the_kernels_serve(
    model: Path, result: Path, options: AppliedOptions, also: tuple[str, ...]
) -> None:
    applied = apply_result(result, model, options=options)
    (written,) = written_provenances(applied.package, "Gate")
    line = runs_when(written)
    head, *conditions, last = line.removeprefix("runs when: ").split("; ")[0].split(", ")
    assert (head, last) == ("eval mode", "parameters and hooks as they were")
    expected = ("no gradient", "no autocast", "inputs on the CPU", "of float32", "contiguous", "aligned to 64 bytes")
    for condition in (*expected, "B from 1 to 5000", *also):
        assert condition in conditions
    assert len(conditions) == len(expected) + len(also) + 4  # the shape has a comma, and so have the attributes
    assert line.endswith("; otherwise your own code")


@pytest.mark.parametrize(("rows", "most"), [(8, 2**31 - 1), (2**25, 2**31)])
def test_a_tensor_as_large_as_the_verified_one_is_served(model: Path, result: Path, rows: int, most: int) -> None:
    """Beyond 2³¹ elements only what was verified is."""
    change(result / "graph.json", dims={"B": rows})
    (written,) = written_provenances(apply_result(result, model).package, "Gate")
    assert written["guard"]["max_elements"] == most
