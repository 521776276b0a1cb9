"""Plans with PyTorch's own calls run as CUDA graphs: values at new addresses, results that survive, other streams and
threads, settings that change.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.worker.applied.binaries import Binaries
from kernel_assistant.worker.applied.launch import AppliedLauncher
from kernel_assistant.worker.applied.parts import Parts
from tests.generator.harness import H200, bindings, compile_candidate, export

pytestmark = pytest.mark.gpu


class Layers(nn.Module):
    """Two layers of attention behind products; the second one's keys are an input."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.o = (nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        q, k = (layer(x).view(2, 40, 4, 16).transpose(1, 2) for layer in (self.q, self.k))
        x = F.scaled_dot_product_attention(q, k, k, is_causal=True).transpose(1, 2).reshape(2, 40, 64)
        x = F.silu(self.o(x)) + 1
        q = self.q(x).view(2, 40, 4, 16).transpose(1, 2)
        x = F.scaled_dot_product_attention(q, keys, keys).transpose(1, 2).reshape(2, 40, 64)
        return torch.tanh(self.o(x))


class Applied:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        torch.manual_seed(0)
        self.model = Layers().eval()
        graph = export(self.model, *(one.cpu() for one in self.inputs(0)))
        candidate = emit(graph, initial(graph, "cuda", H200)[0])
        assert sum(launch.call is not None for launch in candidate.plan.launches) == 2
        compile_candidate(candidate, folder).rename(folder / "kernels.sm_90.cubin")
        self.model.cuda()
        plan, self.graph = to_builtins(candidate.plan), graph
        self.names = [spec["name"] for spec in plan["inputs"]]
        binaries = Binaries(Parts(str(folder.parent), folder.name), "", "cuda", [])
        outputs = [dict(spec) for spec in plan["outputs"]]
        dims = dict.fromkeys(graph.dims, 2)
        self.launch = AppliedLauncher(plan, outputs, dims, binaries, torch.device("cuda", 0), 16)

    def inputs(self, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        random = torch.Generator("cuda").manual_seed(seed)
        x = torch.randn(2, 40, 64, device="cuda", generator=random)
        return x, torch.randn(2, 4, 30, 16, device="cuda", generator=random)

    def __call__(self, args: tuple[torch.Tensor, ...]) -> torch.Tensor:
        values = bindings(self.graph, self.model, args)
        with torch.no_grad():
            return self.launch([values[name].detach() for name in self.names])[0]

    def check(self, args: tuple[torch.Tensor, ...], got: torch.Tensor) -> None:
        # Not all streams: CUDA forbids that while another thread captures one.
        torch.cuda.current_stream().synchronize()
        with torch.no_grad():
            want = copy.deepcopy(self.model).double()(*(arg.double() for arg in args))
        torch.testing.assert_close(got.double(), want, atol=1e-3, rtol=0)

    def is_graph(self) -> bool:
        held = self.launch._held
        assert held is not None
        return all(graph.is_graph for graph in held.graphs)


@pytest.fixture
def applied(tmp_path: Path) -> Applied:
    return Applied(tmp_path / "layers")


def test_new_tensors_at_each_call_and_results_that_survive(applied: Applied) -> None:
    sets = [applied.inputs(seed) for seed in range(8)]
    found = [applied(args) for args in sets]
    for args, one in zip(sets, found, strict=True):
        applied.check(args, one)
    assert applied.is_graph()


def test_memory_that_others_use_meanwhile(applied: Applied) -> None:
    args = applied.inputs(3)
    for _ in range(6):
        got = applied(args)
        others = [torch.full((size,), float("nan"), device="cuda") for size in (1 << 10, 1 << 14, 1 << 18) * 20]
        applied.check(args, got)
        del others


def test_streams_and_threads(applied: Applied) -> None:
    def work(seed: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for call in range(6):
                args = applied.inputs(100 * seed + call)
                got = applied(args)
                stream.synchronize()
                applied.check(args, got)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, range(3)))


def test_other_settings_make_other_graphs(applied: Applied) -> None:
    args = applied.inputs(5)
    for _ in range(4):
        applied(args)
    with sdpa_kernel(SDPBackend.MATH):
        for _ in range(4):
            applied.check(args, applied(args))
        assert applied.is_graph()
    applied.check(args, applied(args))


def test_in_a_graph_of_the_user(applied: Applied) -> None:
    args = applied.inputs(6)
    for _ in range(4):
        applied(args)
    captured: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        kept = applied(args)
    for seed in (7, 8):
        for one, other in zip(args, applied.inputs(seed), strict=True):
            one.copy_(other)
        captured.replay()
        applied.check(args, kept)
