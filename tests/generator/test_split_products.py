"""Float32 products of which tensor cores compute parts: which of them, their plans, and on a GPU their errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.plan import partition, split_products
from kernel_assistant.generator.plan.partition import SPLIT_FORM, TF32_FORM, cut
from kernel_assistant.generator.search.drawn import drawn
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.policy.base import EpisodeView
from kernel_assistant.policy.generator import GeneratorPolicy
from kernel_assistant.records import Baseline, Numerics, OpGraph
from tests.generator.by_parts import ByParts
from tests.generator.harness import H200, Built, Function, Tensors, as_list, bindings, export, graph_of

pytestmark = pytest.mark.sampled(3)


def _drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Layers(nn.Module):
    """Two layers, an activation between them, and a residual sum that the library adds."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = x + self.down(F.silu(self.up(x)))
        return found


def _cases(size: int) -> dict[str, tuple[nn.Module, Tensors]]:
    """Products of matrices of about `size` rows and columns."""
    a, b, c = _drawn(size, size + 8, seed=1), _drawn(size + 8, size + 16, seed=2), _drawn(size, size + 16, seed=3)
    functions: dict[str, tuple[Callable[..., Any], Tensors]] = {
        "plain": (torch.mm, (a, b)),
        "transposed": (lambda a, b: a.t() @ b.t(), (b, a)),
        "added": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), (c, a, b)),
        "batched": (torch.bmm, (_drawn(2, size, 72), _drawn(2, 72, size + 8))),
        "labels": (lambda a, b: torch.einsum("ik,jk->ij", a, b), (a, _drawn(size, size + 8, seed=4))),
        "one operand twice": (lambda a: a @ a.t(), (a,)),
        "of a sum, with an activation": (lambda a, b: torch.relu((a * 2 + 1) @ b + 1), (a, b)),
    }
    named: dict[str, tuple[nn.Module, Tensors]] = {name: (Function(f), args) for name, (f, args) in functions.items()}
    return named | {"layers": (Layers(size, size + 24), (a[:, :size],))}


CASES = _cases(96)


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Splits all products, also those that are too small for it."""
    for name, value in {"LAUNCH": 0.0, "GAIN": 0.0, "LEAST_ROWS": 1}.items():
        monkeypatch.setattr(split_products, name, value)
    partition._cut_text.cache_clear()
    yield
    partition._cut_text.cache_clear()


def _forms(graph: OpGraph) -> list[str]:
    return [part.form for part in initial(graph, "cuda", H200)[0].parts]


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("name", CASES)
def test_plans_compute_the_module(name: str, tmp_path: Path) -> None:
    model, args = CASES[name]
    graph = export(model, *args)
    assert SPLIT_FORM in _forms(graph)
    by_parts = ByParts(graph, tmp_path)
    assert "residual" not in by_parts.kinds
    with torch.no_grad():
        wanted = as_list(model.double()(*(arg.double() for arg in args)))
        model.float()
    for got, want in zip(by_parts(bindings(graph, model, args)), wanted, strict=True):
        assert torch.allclose(got.double(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("name", CASES)
def test_candidates_read_back_with_and_without(name: str) -> None:
    """The second schedule computes all products as they are; around each there are others of its kind."""
    graph = graph_of(CASES[name])
    found = initial(graph, "cuda", H200)
    assert [SPLIT_FORM in schedule.forms() for schedule in found] == [True, False, *[True] * (len(found) - 2)]
    for schedule in found[:2]:
        candidate = emit(graph, schedule)
        assert parse(candidate) == (graph, schedule)
        compute = {dict(one.settings)["compute"] for one in candidate.plan.launches if one.library}
        assert compute == {"split" if SPLIT_FORM in schedule.forms() else "flags"}
        others = neighbours(graph, schedule, H200)
        assert all((SPLIT_FORM in other.forms()) == (SPLIT_FORM in schedule.forms()) for other in others)


@pytest.mark.parametrize(
    ("model", "x"),
    [(Layers(32, 48), _drawn(40, 32)), (nn.Sequential(nn.Conv2d(8, 16, 3), nn.SiLU()), _drawn(7, 8, 150, 150))],
    ids=["products", "convolution"],
)
def test_tf32_comes_first_where_it_is_asked_for(model: nn.Module, x: torch.Tensor) -> None:
    graph = export(model, x)
    first, *others = initial(graph, "cuda", H200, tf32=True)
    assert others == initial(graph, "cuda", H200)
    assert [TF32_FORM in schedule.forms() for schedule in (first, *others)] == [True, *[False] * len(others)]
    candidate = emit(graph, first)
    assert parse(candidate) == (graph, first)
    assert {dict(one.settings)["compute"] for one in candidate.plan.launches if one.library} == {"tf32"}
    assert all(TF32_FORM in other.forms() for other in neighbours(graph, first, H200))
    view = EpisodeView(graph, "cuda", H200, Baseline(eager_ms=1, compile_ms=None, floor_ms=0), (), 60, Numerics.paper)
    assert GeneratorPolicy().step(view).candidates == (candidate,)


def test_without_float32_in_a_library_there_is_no_tf32() -> None:
    for model, x in ((nn.Softmax(-1), torch.rand(8, 32)), (nn.Linear(32, 32).half(), torch.rand(8, 32).half())):
        graph = export(model, x)
        assert initial(graph, "cuda", H200, tf32=True) == initial(graph, "cuda", H200)


@pytest.mark.usefixtures("everything")
def test_schedules_are_drawn_for_split_products() -> None:
    graph = graph_of(CASES["layers"])
    found = drawn(graph, "cuda", H200, Random(0), 3)
    assert len(found) == 3
    for schedule, candidate in found:
        assert SPLIT_FORM in schedule.forms()
        assert parse(candidate) == (graph, schedule)


def test_which_products_are_split() -> None:
    large = export(nn.Linear(2048, 2048), torch.rand(2048, 2048))
    assert _forms(large)[-1] == SPLIT_FORM
    (wide,) = [node for part in cut(large, "cuda").parts for node in part.graph.nodes if node.op.endswith(".split")]
    assert wide.kwargs.keys() == {"left_low", "right_low"}
    others = {
        "few rows": (nn.Linear(4096, 4096), torch.rand(16, 4096)),
        "rows that are not aligned": (nn.Linear(2047, 2048), torch.rand(2048, 2047)),
        "small": (nn.Linear(512, 512), torch.rand(512, 512)),
        "half": (nn.Linear(2048, 2048).half(), torch.rand(2048, 2048).half()),
        "double": (nn.Linear(2048, 2048).double(), torch.rand(2048, 2048).double()),
    }
    for name, (model, x) in others.items():
        assert SPLIT_FORM not in initial(export(model, x), "cuda", H200)[0].forms(), name


def test_a_graph_without_split_products_is_cut_once() -> None:
    graph = export(Layers(64, 128), torch.rand(32, 64))
    partition._cut_text.cache_clear()
    schedule = initial(graph, "cuda", H200)[0]
    cuts = partition._cut_text.cache_info().misses
    emit(graph, schedule)
    assert partition._cut_text.cache_info().misses == cuts


def test_gpus_whose_tensor_cores_are_not_faster_split_nothing() -> None:
    graph = export(nn.Linear(2048, 2048), torch.rand(2048, 2048))
    for arch, split in {"sm_80": True, "sm_90a": True, "sm_100": True, "sm_86": False, "sm_89": False}.items():
        found = initial(graph, "cuda", replace(H200, arch=arch))
        assert any(SPLIT_FORM in schedule.forms() for schedule in found) is split


def test_weights_are_split_once_and_an_input_in_one_kernel() -> None:
    graph = export(Layers(2048, 4096), torch.rand(2048, 2048))
    plan = emit(graph, initial(graph, "cuda", H200)[0]).plan
    assert len(plan.prepare) == 4  # both parts of two weights
    kernels = [launch for launch in plan.launches if not launch.library]
    assert len(kernels) == 2 and all({"out0", "out1"} <= dict(launch.args).keys() for launch in kernels)


LARGE: dict[str, Callable[[], tuple[nn.Module, Tensors]]] = {
    "several pieces": lambda: (nn.Linear(4096, 1024), (_drawn(1000, 4096),)),
    "a piece and a rest": lambda: (nn.Linear(1500, 1024, bias=False), (_drawn(2000, 1500),)),
    "less than a piece": lambda: (nn.Linear(800, 4096), (_drawn(4096, 800),)),
    "batch": lambda: (Function(torch.bmm), (_drawn(16, 2048, 1024), _drawn(16, 1024, 2048))),
    "transposed": lambda: (Function(lambda a, b: a.t() @ b.t()), (_drawn(2048, 1024), _drawn(1536, 2048))),
    "added": lambda: (
        Function(lambda c, a, b: torch.addmm(c, a, b, beta=-0.5)),
        tuple(_drawn(2048, 2048, seed=seed) for seed in range(3)),
    ),
    "layers": lambda: (Layers(2048, 4096), (_drawn(1024, 2048),)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", LARGE)
def test_errors_on_a_gpu(name: str, tmp_path: Path) -> None:
    """Of normal numbers 2e-5 of the results' rms; of positive ones, whose sums are all cut off in one direction, 1e-5
    of the largest value."""
    model, args = LARGE[name]()
    graph = export(model, *args)
    assert SPLIT_FORM in _forms(graph)
    built = Built(graph, initial(graph, "cuda", H200)[0], tmp_path)
    for positive in (False, True):
        on_gpu = tuple(arg.abs().cuda() if positive else arg.cuda() for arg in args)
        with torch.no_grad():
            wanted = as_list(model.cuda().double()(*(arg.double() for arg in on_gpu)))
            model.float()
        for got, want in zip(built(bindings(graph, model, on_gpu)), wanted, strict=True):
            error = float((got.cuda().double() - want).abs().max())
            assert error <= (1e-5 * float(want.abs().max()) if positive else 2e-5 * float(want.square().mean().sqrt()))
        model.cpu()


@pytest.mark.gpu
def test_tf32_whatever_the_flags_say(tmp_path: Path) -> None:
    model, args = Function(torch.mm), (_drawn(512, 256), _drawn(256, 512))
    graph = export(model, *args)
    (got,) = Built(graph, initial(graph, "cuda", H200, tf32=True)[0], tmp_path)(bindings(graph, model, args))
    want = args[0].double() @ args[1].double()
    assert 1e-5 < float((got.double() - want).norm() / want.norm()) < 1e-3


@pytest.mark.gpu
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_stays_so(value: float, tmp_path: Path) -> None:
    a, b = _drawn(1024, 1024, seed=1), _drawn(1024, 1024, seed=2)
    a[3, 5], b[7, 11] = value, value
    model = Function(torch.mm)
    graph = export(model, a, b)
    (got,) = Built(graph, initial(graph, "cuda", H200)[0], tmp_path)(bindings(graph, model, (a.cuda(), b.cuda())))
    want = a @ b
    assert torch.equal(torch.isnan(got), torch.isnan(want)) and torch.equal(torch.isinf(got), torch.isinf(want))
    finite = torch.isfinite(want)
    assert torch.allclose(got[finite], want[finite], rtol=1e-4, atol=1e-3)
    assert torch.equal(got[torch.isinf(want)], want[torch.isinf(want)])
