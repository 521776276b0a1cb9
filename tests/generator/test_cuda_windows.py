"""On a GPU: windows, gathers and layout operators, with the first schedule of a search and with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.schedule import Schedule, read_schedule
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import OpGraph
from tests.generator.checks import check_sizes
from tests.generator.harness import H200, Built, binary_of, compile_all, export
from tests.generator.test_cuda_text import STRIP_LINES
from tests.generator.window_modules import CHAINS, GATHERS, LAYOUT, OTHERS, STRIPS, WINDOWS

pytestmark = pytest.mark.gpu

CASES = {**WINDOWS, **STRIPS, **OTHERS, **CHAINS, **GATHERS, **LAYOUT}
FORMS = [
    ("max 1d dilated", "window/shared block=64"),
    ("max 2d", "window/direct rows=8 block=128"),
    ("max 2d ceil", "window/shared rows=4 unroll=2"),
    ("max 3d dilated", "window/direct rows=2"),
    ("max of integers", "window/shared"),
    ("average 1d", "window/shared block=128"),
    ("average 2d wide", "window/shared unroll=4 block=64"),
    ("average 2d long", "window/shared block=64"),
    ("average 3d", "window/shared rows=4 unroll=2"),
    ("average 3d uncounted", "window/direct rows=4"),
    ("mixed", "window/direct rows=4"),
    ("mixed", "window/shared rows=2"),
    ("fused", "window/shared rows=2 unroll=2"),
    ("residual", "window/direct rows=16"),
    ("down columns", "window/direct rows=4"),
    ("bf16", "window/shared rows=2"),
    ("double", "window/shared"),
    ("joined", "window/direct rows=2"),
    ("max 1d dilated", "window/strip strip=2 block=64 stage=1"),
    ("max 2d", "window/strip rows=4 strip=2"),
    ("max 3d dilated", "window/strip strip=4"),
    ("average 3d", "window/strip strip=2 rows=2"),
    ("mixed", "window/strip strip=4"),
    ("residual", "window/strip strip=16 rows=2"),
    ("channels last", "window/strip strip=8"),
    ("bf16", "window/strip strip=8"),
    *STRIP_LINES,
    ("strip: halves", "window/strip strip=8 block=32"),
    ("wide rows", "pointwise unroll=4 hint=1"),
    ("embedding of halves", "pointwise vec=8 unroll=2"),
    ("pairs", "pointwise vec=4"),
    ("cat", "pointwise vec=4 unroll=2"),
    ("cat even", "pointwise vec=4 unroll=2"),
    ("laplace", "pointwise unroll=2 vec=4"),
    ("bilinear size", "pointwise vec=2"),
    ("transposed", "pointwise/transpose tile=16 block=128"),
    ("transposed halves", "pointwise/transpose tile=64"),
]


Key = tuple[str, str]
Binaries = dict[Key, tuple[OpGraph, Path | AssertionError]]


@pytest.fixture(scope="module")
def binaries(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Binaries:
    """The graph of every selected case and the compiled kernel; "" stands for the first schedule."""
    found = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec")
    ]
    keys = [(params["name"], params["line"]) for params in found]
    graphs = {name: export(CASES[name][0], *CASES[name][1]) for name, _ in keys}
    candidates = [emit(graphs[name], _schedule(graphs[name], line)) for name, line in keys]
    binaries = compile_all(candidates, [tmp_path_factory.mktemp("kernel") for _ in keys])
    return {key: (graphs[key[0]], found) for key, found in zip(keys, binaries, strict=True)}


def _schedule(graph: OpGraph, line: str) -> Schedule:
    return read_schedule("cuda", line) if line else initial(graph, "cuda", H200)[0]


@pytest.mark.parametrize(("name", "line"), [*((name, "") for name in CASES), *FORMS])
def test_schedules_are_right(name: str, line: str, binaries: Binaries, tmp_path: Path) -> None:
    model, args = CASES[name]
    graph, found = binaries[name, line]
    built = Built(graph, _schedule(graph, line), tmp_path, binary_of(found))
    check_sizes(model, args, built)
