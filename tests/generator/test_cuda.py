"""CUDA candidates: every kernel family compiles without a warning; on a GPU, all schedules that a search would try are
right.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import make, read_schedule
from kernel_assistant.generator.search.search import initial, neighbours
from tests.generator.checks import check, check_compiles, check_sizes
from tests.generator.harness import H200, Built, Function, built_first, export, graph_of
from tests.generator.modules import CASES

FORMS = [
    ("pointwise: activations", "pointwise unroll=2"),
    ("pointwise: half", "pointwise vec=8 hint=1"),
    ("pointwise: batch norm", "pointwise vec=1"),
    ("rows: softmax", "rows/warp items=3"),
    ("rows: softmax", "rows/warp lanes=16 items=11 vec=2"),
    ("rows: layer norm", "rows/reg block=128 items=1"),
    ("rows: softmax wide", "rows/reg block=128 cluster=4 items=3"),
    ("rows: softmax wide", "rows/shared block=256 cluster=2"),
    ("rows: layer norm even", "rows/stream block=128 cluster=2"),
    ("rows: statistics", "rows/split parts=3 block=64"),
    ("cols: softmax", "cols/reg items=10 ty=4"),
    ("cols: rms", "cols/stream vec=4"),
    ("cols: softmax", "cols/split parts=3"),
    ("scan: normed", "scan/rows"),
    ("scan: reverse", "scan/rows block=128 items=8 hint=1"),
    ("scan: product", "scan/rows items=2"),
    ("scan: middle", "scan/cols"),
    ("scan: greatest", "scan/rows block=128 items=2"),
    ("scan: least", "scan/cols"),
    ("scan: greatest with positions", "scan/rows block=128 items=2"),
    ("scan: positions of the least", "scan/cols"),
]


@pytest.mark.builds
@pytest.mark.slow
@pytest.mark.parametrize(("name", "line"), FORMS)
def test_every_form_compiles(name: str, line: str, tmp_path: Path) -> None:
    check_compiles(graph_of(CASES[name]), read_schedule("cuda", line), tmp_path)


class _Doubled(nn.Module):
    """Neighbouring elements are equal, and every element has the same slope."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.PReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.repeat_interleave(self.slope(x), 2)


@pytest.mark.builds
@pytest.mark.slow
@pytest.mark.parametrize("vec", [2, 4])
def test_a_single_element_that_stands_still_within_a_vector_compiles(vec: int, tmp_path: Path) -> None:
    graph = export(_Doubled(), torch.randn(5, 6, 8))
    check_compiles(graph, read_schedule("cuda", f"pointwise vec={vec}"), tmp_path)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("rows: softmax", "rows/reg block=64 items=1"),
        ("rows: softmax", "pointwise"),
        ("rows: softmax", "rows/stream block=100"),
        ("cols: softmax", "cols/reg items=1 ty=1"),
        ("cols: softmax", "cols/stream tx=128 ty=16"),
        ("scan: sum", "scan/rows block=1024 items=2"),
        ("scan: reverse odd", "scan/rows vec=4"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(name: str, line: str) -> None:
    with pytest.raises(Unsupported):
        emit(graph_of(CASES[name]), read_schedule("cuda", line))


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_all_first_schedules_are_right(name: str, tmp_path: Path) -> None:
    model, args = CASES[name]
    for built in built_first(graph_of(CASES[name]), H200, tmp_path, None):
        check_sizes(model, args, built)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "line"), FORMS)
def test_all_neighbours_are_right(name: str, line: str, tmp_path: Path) -> None:
    model, args = CASES[name]
    graph, schedule = graph_of(CASES[name]), read_schedule("cuda", line)
    for other in [schedule, *neighbours(graph, schedule, H200)]:
        check(model, args, Built(graph, other, tmp_path))


def test_clusters_are_launched_whole() -> None:
    """The grid is a multiple of the cluster, whatever the number of rows."""
    candidate = emit(graph_of(CASES["rows: softmax wide"]), make("cuda", "rows/stream", cluster=8))
    assert candidate.plan.launches[0].grid[0] == "B * 8"


@pytest.mark.parametrize("columns", [20, 64, 100, 128])
def test_tiles_are_no_wider_than_their_columns(columns: int) -> None:
    """Threads behind the last column would have nothing to do."""
    graph = export(Function(lambda x: torch.softmax(x, 1)), torch.rand(512, 64, columns))
    widths = [one["tx"] * one["vec"] for one in initial(graph, "cuda", H200) if one.form.startswith("cols/")]
    assert widths and max(widths) <= 1 << (columns - 1).bit_length()
