"""A plan with library launches runs as CUDA graphs: values at new addresses, changed parameters, streams, threads,
capture by somebody else, plans that share memory.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.worker.applied.binaries import Binaries
from kernel_assistant.worker.applied.launch import AppliedLauncher
from kernel_assistant.worker.applied.parts import Parts
from tests.generator.harness import compile_candidate, export
from tests.generator.test_cuda import H200

pytestmark = pytest.mark.gpu

CALLS = 8


class Network(nn.Module):
    """Our kernels around two convolutions and two products; `x` is read by a kernel, `y` by a product."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, 16, 3, padding=1)
        self.side = nn.Linear(32, 16)
        self.last = nn.Linear(16, 24)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = self.second(F.silu(self.norm(self.first(torch.tanh(x)))))
        found = F.gelu(found).mean((2, 3)) + self.side(y)
        return self.last(torch.tanh(found))


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


class Applied:
    """A network and its launcher, as an applied package makes it."""

    def __init__(self, folder: Path, width: int = 24) -> None:
        folder.mkdir()
        torch.manual_seed(width)
        self.model = Network(width).cuda().eval()
        graph = export(self.model, *self.inputs(0))
        candidate = emit(graph, initial(graph, "cuda", H200)[0])
        assert sum(bool(launch.library) for launch in candidate.plan.launches) == 4
        compile_candidate(candidate, folder).rename(folder / "kernels.sm_90.cubin")
        plan, self.graph = to_builtins(candidate.plan), graph
        self.names = [spec["name"] for spec in plan["inputs"]]
        binaries = Binaries(Parts(str(folder.parent), folder.name), "", "cuda", [])
        dims = dict.fromkeys(graph.dims, 2)
        outputs = [dict(spec) for spec in plan["outputs"]]
        self.launch = AppliedLauncher(plan, outputs, dims, binaries, torch.device("cuda", 0), 16)

    def inputs(self, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        random = torch.Generator("cuda").manual_seed(seed)
        x = torch.randn(2, 8, 20, 20, device="cuda", generator=random)
        return x, torch.randn(2, 32, device="cuda", generator=random)

    def __call__(self, args: tuple[torch.Tensor, ...]) -> torch.Tensor:
        state: dict[str, Any] = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        values = {
            value.name: args[int(value.name[1:])] if value.kind == "input" else state[value.path].detach()
            for value in self.graph.inputs
        }
        return self.launch([values[name] for name in self.names])[0]

    def right(self, args: tuple[torch.Tensor, ...], got: torch.Tensor) -> bool:
        torch.cuda.synchronize()
        with torch.no_grad():
            want = copy.deepcopy(self.model).double()(*(arg.double() for arg in args))
        return bool((got.double() - want).abs().max() < 1e-4 * want.abs().max())


@pytest.fixture
def applied(tmp_path: Path) -> Applied:
    return Applied(tmp_path / "network")


def is_graph(one: Applied) -> bool:
    """Whether this thread's calls on the current stream go through graphs."""
    held = one.launch._held
    assert held is not None
    (graph,) = held.graphs
    return graph.is_graph


def test_the_same_tensors_again_and_again(applied: Applied) -> None:
    args = applied.inputs(1)
    found = [applied(args) for _ in range(CALLS)]
    assert all(applied.right(args, one) for one in found)
    assert is_graph(applied)


def test_new_tensors_at_each_call_and_results_that_survive(applied: Applied) -> None:
    sets = [applied.inputs(seed) for seed in range(CALLS)]
    found = [applied(args) for args in sets]
    assert all(applied.right(args, one) for args, one in zip(sets, found, strict=True))
    assert is_graph(applied)


def test_parameters_that_change_and_that_move(applied: Applied) -> None:
    args = applied.inputs(1)
    for step in range(12):
        with torch.no_grad():
            for parameter in applied.model.parameters():
                if step % 4 == 3:
                    parameter.data = parameter.data * 1.05
                else:
                    parameter.mul_(1.05)
        assert applied.right(args, applied(args)), step


def test_streams_threads_and_one_after_another(applied: Applied) -> None:
    sets = [applied.inputs(seed) for seed in range(6)]
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()

    def calls(number: int) -> list[torch.Tensor]:
        found = []
        for at in range(30):
            with torch.cuda.stream(streams[(number + at // 10) % 3]):
                found.append(applied(sets[number]))
        return found

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(calls, range(6)))
    assert all(applied.right(args, one) for args, some in zip(sets, found, strict=True) for one in some[::7])


def test_a_flag_of_pytorch_changes_behind_the_graph(applied: Applied) -> None:
    args = applied.inputs(1)
    products = torch.backends.cuda.matmul
    before, found = products.fp32_precision, []
    for precision in ("ieee", "tf32", "ieee"):
        products.fp32_precision = precision
        found.append([applied(args) for _ in range(4)][-1])
    products.fp32_precision = before
    exact, rough, again = found
    torch.cuda.synchronize()
    assert torch.equal(exact, again)
    assert not torch.equal(exact, rough)


def test_inside_somebodys_capture(applied: Applied) -> None:
    args, others = applied.inputs(1), applied.inputs(2)
    for _ in range(4):
        applied(args)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        got = applied(args)
    for _ in range(3):
        got.fill_(0)
        # The replay and a call of ours at the same time, on two streams.
        with torch.cuda.stream(torch.cuda.Stream()):
            mine = applied(others)
        recorded.replay()
        assert applied.right(args, got)
        assert applied.right(others, mine)


def test_plans_share_memory_that_grows_once(tmp_path: Path) -> None:
    small, large = Applied(tmp_path / "small", 16), Applied(tmp_path / "large", 96)
    args = small.inputs(1)
    order = (small, small, small, small, large, large, large, small, large, small, small, small, large)
    found = [(one, one(args)) for one in order]
    assert all(one.right(args, got) for one, got in found)
    memory = {next(iter(one.launch._held._of.values()))[0].data_ptr() for one in (small, large)}  # type: ignore[union-attr]
    assert len(memory) == 1


def test_a_thread_that_ends_gives_its_memory_back(applied: Applied) -> None:
    args = applied.inputs(1)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        worker = threading.Thread(target=lambda: [applied(args) for _ in range(4)])
        worker.start()
        worker.join()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before < 1 << 22
