"""Pooling on the CPU compared with PyTorch, and the emitted text for both targets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Expr, Load
from kernel_assistant.generator.ir.schedule import make, read_schedule
from kernel_assistant.generator.loops.checked import checked_nest
from kernel_assistant.generator.lower import moving
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.generator.support import classify
from kernel_assistant.targets import cpu
from tests.generator.checks import check, check_compiles, check_on_cpu, check_read_back
from tests.generator.harness import DEVICES, Built, Function, export, graph_of
from tests.generator.modules import spread
from tests.generator.window_modules import CHAINS, IMAGE, OTHERS, WINDOWS

pytestmark = pytest.mark.sampled(3)


@pytest.mark.parametrize("name", [*WINDOWS, *OTHERS, *CHAINS])
def test_first_schedule(name: str, tmp_path: Path) -> None:
    check_on_cpu(*{**WINDOWS, **OTHERS, **CHAINS}[name], tmp_path)


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("name", ["max 1d dilated", "average 2d long", "mixed", "fused", "max 3d dilated", "bf16"])
def test_tiles_end_anywhere(name: str, stage: int, tmp_path: Path) -> None:
    model, args = WINDOWS[name]
    check(model, args, Built(graph_of(WINDOWS[name]), make("cpu", "window", tile=7, stage=stage), tmp_path))


@pytest.mark.parametrize("name", [*WINDOWS, *OTHERS])
def test_families(name: str) -> None:
    model, args = {**WINDOWS, **OTHERS}[name]
    assert classify(export(model, *args), "cuda") == (name.partition(":")[0] if name in OTHERS else "window")


@pytest.mark.parametrize("name", WINDOWS)
def test_schedules_come_back(name: str) -> None:
    graph = graph_of(WINDOWS[name])
    for target, device in (("cpu", cpu.facts()), ("cuda", DEVICES["cuda"])):
        first = initial(graph, target, device)
        check_read_back(graph, [*first, *neighbours(graph, first[0], device)])


def test_special_values(tmp_path: Path) -> None:
    """NaN wins the maximum, and windows may consist of infinities."""
    x = spread(2, 3, 8, 8)
    x[0, 0, 2, 2], x[1, 1, :, :] = float("nan"), -float("inf")
    model = Function(lambda x: F.max_pool2d(x, 3, 2, 1))
    got = Built(export(model, x), make("cpu", "window"), tmp_path)({"x0": x})[0]
    assert torch.equal(got.nan_to_num(7, 8, 9), model(x).nan_to_num(7, 8, 9))


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_all_ways_to_place_windows(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    height, width = (data.draw(st.integers(1, 23)) for _ in range(2))
    kernel = tuple(data.draw(st.integers(1, 5)) for _ in range(2))
    stride = tuple(data.draw(st.integers(1, 4)) for _ in range(2))
    padding = tuple(data.draw(st.integers(0, size // 2)) for size in kernel)
    ceil, include, largest = (data.draw(st.booleans()) for _ in range(3))
    dilation = tuple(data.draw(st.integers(1, 3)) for _ in range(2)) if largest else (1, 1)
    reach = [d * (k - 1) + 1 - 2 * p for k, d, p in zip(kernel, dilation, padding, strict=True)]
    assume(height >= reach[0] and width >= reach[1])

    def pool(x: torch.Tensor) -> torch.Tensor:
        if largest:
            return F.max_pool2d(x, kernel, stride, padding, dilation, ceil) + 1
        return F.avg_pool2d(x, kernel, stride, padding, ceil, include) + 1

    model, x = Function(pool), spread(2, 3, height, width)
    graph = export(model, x)
    schedules = initial(graph, "cpu", cpu.facts())
    schedule = schedules[data.draw(st.integers(0, len(schedules) - 1))]
    check(model, (x,), Built(graph, schedule, tmp_path_factory.mktemp("window")))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), "adaptive pooling over"),
        (lambda x: F.max_pool2d(x, 6, return_indices=True), "indices of maxima over 36"),
        (lambda x: F.adaptive_max_pool2d(x, 1, return_indices=True), "indices of maxima over"),
    ],
)
def test_what_is_not_written_says_why(function: object, reason: str) -> None:
    assert reason in classify(export(Function(function), IMAGE), "cpu")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("max 1d dilated", "window/direct rows=2"),
        ("max 2d", "window/direct block=100"),
        ("max 2d", "pointwise"),
        ("down columns", "window/shared"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(name: str, line: str) -> None:
    with pytest.raises(Unsupported):
        emit(graph_of(WINDOWS[name]), read_schedule("cuda", line))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("max 2d", "window/direct rows=8"),
        ("max 3d dilated", "window/direct rows=2"),
        ("average 2d wide", "window/direct"),
        ("average 2d long", "window/direct block=64"),
        ("mixed", "window/direct rows=4"),
        ("fused", "window/direct rows=2"),
        ("down columns", "window/direct rows=4"),
        ("of padded", "window/direct"),
        ("bf16", "window/direct rows=2"),
        ("max of integers", "window/direct"),
        ("average 2d wide", "window/shared unroll=2 block=64"),
        ("max 1d dilated", "window/shared"),
        ("mixed", "window/shared rows=2"),
        ("fused", "window/shared rows=2 unroll=2"),
        ("average 3d", "window/shared rows=4 unroll=2"),
        ("max 1d dilated", "window/strip strip=2 block=64 stage=1"),
        ("max 2d", "window/strip rows=4 strip=2"),
        ("mixed", "window/strip strip=4"),
        ("fused", "window/strip strip=8 rows=2"),
        ("bf16", "window/strip strip=8"),
        ("double", "window/strip strip=4 block=32"),
        ("max of integers", "window/strip strip=4"),
    ],
)
def test_cuda_forms_compile(name: str, line: str, tmp_path: Path) -> None:
    check_compiles(graph_of(WINDOWS[name]), read_schedule("cuda", line), tmp_path)


def test_rows_of_free_length_are_not_pooled() -> None:
    """Positions in windows are literals, so a row of free length is refused."""
    free = export(Function(lambda x: F.avg_pool1d(x.t(), 2)), spread(40, 4))
    assert "free size" in str(classify(free, "cpu"))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_many_joined_values_stay_one_kernel(target: str) -> None:
    graph = export(Function(lambda x: torch.cat(x.split(2, 1)[::-1], 1)), spread(4, 600, 8))
    assert initial(graph, target, DEVICES[target])[0].form != "parts"


def _windows_in_windows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Each result of the softmax reads 1,600 windows of the first pooling, if nothing between them is written."""
    gate = torch.sigmoid(x)
    one, two, three, four = torch.split(F.max_pool2d(gate * y + (1 - gate) * x, 5, 2, 2), 4, -1)
    mixed = torch.tanh(F.gelu(two)) - (one - (0.5 - three)) - four
    return torch.softmax(F.avg_pool2d(mixed, 4, 4, 2) / 3, -1)


def test_windows_inside_of_many_windows_are_a_part_of_their_own(tmp_path: Path) -> None:
    """As one kernel, planning took minutes."""
    args = spread(2, 3, 32, 32), spread(2, 3, 32, 32).flip(0)
    graph = export(Function(_windows_in_windows), *args)
    for target in ("cpu", "cuda"):
        assert initial(graph, target, DEVICES[target])[0].form == "parts"
    check_on_cpu(Function(_windows_in_windows), args, tmp_path)


def test_windows_of_too_many_loads_are_refused_before_these_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three poolings of 15, 16 and 15 positions: as one kernel, 3,600 loads, of which a fraction is made."""
    made: list[Load] = []
    load = moving._Move.load

    def counted(self: moving._Move, expr: Load) -> Expr:
        made.append(expr)
        return load(self, expr)

    monkeypatch.setattr(moving._Move, "load", counted)

    def centred(x: torch.Tensor) -> torch.Tensor:
        pooled = F.avg_pool2d(F.max_pool2d(F.avg_pool2d(x, (3, 5)), 4, 1, 2), (3, 5), 2, (1, 0))
        return pooled - pooled.mean(1, keepdim=True)

    with pytest.raises(Unsupported, match="loads in one kernel"):
        checked_nest(export(Function(centred), spread(2, 3, 25, 25)), "cuda")
    assert 0 < len(made) < moving.MOST_UNROLLED
