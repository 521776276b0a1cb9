"""Passes over rows of 16-bit elements: full batches of vectors, the rest, and which loads bypass the caches."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.schedule import read_schedule
from kernel_assistant.generator.search.search import initial
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import Function, Tensors, check, export, resized
from tests.generator.test_cuda import H200

pytestmark = pytest.mark.builds

Case = tuple[nn.Module, Tensors]


def _half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).bfloat16()


# Results in float, so that sums are compared to more than three digits.
CASES: dict[str, Case] = {
    "squares": (Function(lambda a, b: ((a.float() - b.float()) ** 2).mean()), (_half(5, 1000), _half(5, 1000) + 1)),
    "hinge": (Function(lambda p, t: (1 - p.float() * t.float()).clamp(min=0).mean()), (_half(6, 1024), _half(1024))),
    "odd": (Function(lambda x: (x.float() ** 2).sum()), (_half(7, 333),)),
    "norm": (Function(lambda x: x / torch.norm(x, p="fro")), (_half(5, 8, 120),)),
    "rows": (Function(lambda x: F.softmax(x.float(), -1)), (_half(3, 1512),)),
    "odd rows": (Function(lambda x: F.softmax(x.float(), -1)), (_half(3, 1501),)),
    "pointwise": (Function(torch.sigmoid), (_half(5, 24),)),
    "odd pointwise": (Function(torch.sigmoid), (_half(5, 27),)),
}
LINES = [
    ("squares", "rows/split block=64 parts=2 unroll=4 vec=8 join=1"),
    ("squares", "rows/split block=32 parts=7 unroll=2 vec=8"),
    ("squares", "rows/stream block=32 unroll=8 vec=8"),
    ("hinge", "rows/split block=64 parts=2 unroll=4 vec=8 join=1 hint=1"),
    ("hinge", "rows/split block=32 parts=5 unroll=2 vec=4"),
    ("odd", "rows/split block=32 parts=3 unroll=2 vec=8"),
    ("norm", "rows/split block=32 parts=3 unroll=4 vec=8 join=1 hint=1"),
    ("rows", "rows/stream block=32 unroll=4 vec=8"),
    ("odd rows", "rows/stream block=32 unroll=2 vec=8"),
    ("odd rows", "rows/split block=32 parts=3 unroll=2 vec=8"),
    ("pointwise", "pointwise block=32 unroll=2 vec=8"),
    ("odd pointwise", "pointwise block=32 vec=8"),
]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(("name", "line"), LINES, ids=[f"{name} {line}" for name, line in LINES])
def test_values(name: str, line: str, tmp_path: Path) -> None:
    model, args = CASES[name]
    built = OnHost(export(model, *args), read_schedule("cuda", line), tmp_path)
    check(model, args, built)
    check(model, resized(args, 2), built)


def _source(name: str, line: str) -> str:
    model, args = CASES[name]
    return emit(export(model, *args), read_schedule("cuda", line)).sources["kernel.cu"]


@pytest.mark.parametrize("name", ["squares", "pointwise"])
def test_no_element_is_asked_for_where_vectors_end_with_the_row(name: str) -> None:
    """Every value of the free sizes is a multiple of the vector."""
    source = _source(name, "rows/split vec=8" if name == "squares" else "pointwise vec=8")
    assert "e + k <" not in source
    assert "false>" not in source


def test_what_rows_share_stays_in_the_caches() -> None:
    source = _source("hinge", "rows/split vec=8 hint=1")
    assert "ka_row_load<8, 1, true>(l_x0" in source
    assert "ka_row_load<8, 0, true>(l_x1" in source


def test_first_schedules_of_a_long_reduction_differ_in_what_is_in_flight() -> None:
    size = torch.empty(32768, 32768, dtype=torch.bfloat16)
    first = initial(export(Function(lambda a, b: torch.mean((a - b) ** 2)), size, size), "cuda", H200)[:8]
    assert {schedule["unroll"] for schedule in first} == {2, 4, 8}
    assert {schedule["block"] for schedule in first} == {256, 512}
    assert {schedule["hint"] for schedule in first} == {0, 1}
    assert any(schedule["parts"] % H200.cores == 0 for schedule in first)
