"""Batch norms folded into convolutions, and what is computed once: which nodes, and their values."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.operators import operator
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.plan.folding import with_folded_norms
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import OpGraph
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.worker.runner.pytorch.aten import Operator
from tests.generator.checks import check_compiles
from tests.generator.harness import H200, Computed, Tensors, bindings, export


class Behind(nn.Module):
    """A convolution, then a norm; `also` says what else is read."""

    def __init__(self, inner: nn.Module, norm: nn.Module, also: str = "") -> None:
        super().__init__()
        self.inner, self.norm, self.also = inner, norm, also

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        found = self.inner(x)
        if self.also == "result":
            return self.norm(found), found
        return self.norm(found) + found if self.also == "read" else torch.relu(self.norm(found))


def drawn(model: nn.Module) -> nn.Module:
    """The module with parameters and statistics of any sign and size, for inference."""
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.randn(value.shape, generator=random) * (2 if "norm" in name else 0.3))
        for name, value in model.named_buffers():
            if value.is_floating_point():
                fresh = torch.rand(value.shape, generator=random)
                value.copy_(fresh * 3 + 1e-3 if "var" in name else fresh * 8 - 4)
    return model.eval()


def folding_graph(model: nn.Module, *args: torch.Tensor) -> tuple[OpGraph, OpGraph]:
    graph = export(model, *args)
    return graph, with_folded_norms(graph)


def values_of(graph: OpGraph, model: nn.Module, args: Tensors) -> list[torch.Tensor]:
    """What the graph computes, in float64."""
    values = {name: value.double() for name, value in bindings(graph, model, args).items()}
    sizes = dict.fromkeys(graph.dims, args[0].shape[0])
    for node in graph.nodes:
        Operator(to_builtins(node), sizes, "cpu")(values)
    return [values[name] for name in graph.outputs]


FOLDED = {
    "2d, bias": (Behind(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8)), (2, 6, 9, 9)),
    "no bias": (Behind(nn.Conv2d(6, 8, 3, bias=False), nn.BatchNorm2d(8)), (2, 6, 9, 9)),
    "no weights": (Behind(nn.Conv2d(6, 8, 3, stride=2), nn.BatchNorm2d(8, affine=False)), (2, 6, 9, 9)),
    "1d": (Behind(nn.Conv1d(6, 8, 3, dilation=2), nn.BatchNorm1d(8, eps=0.1)), (2, 6, 9)),
    "3d, groups": (Behind(nn.Conv3d(6, 8, 2, groups=2), nn.BatchNorm3d(8)), (2, 6, 4, 5, 6)),
}
KEPT = {
    "another result": (Behind(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), "result"), (2, 6, 9, 9)),
    "another reader": (Behind(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), "read"), (2, 6, 9, 9)),
    "depthwise": (Behind(nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8)), (2, 8, 9, 9)),
    "transposed": (Behind(nn.ConvTranspose2d(6, 8, 3), nn.BatchNorm2d(8)), (2, 6, 9, 9)),
    "half": (Behind(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8)).bfloat16(), (2, 6, 9, 9)),
    "own statistics": (Behind(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8, track_running_stats=False)), (2, 6, 9, 9)),
    "another norm": (Behind(nn.Conv2d(6, 8, 3), nn.GroupNorm(2, 8)), (2, 6, 9, 9)),
}


@pytest.mark.parametrize("name", FOLDED)
def test_folded_norms_have_the_values_of_the_module(name: str) -> None:
    model, shape = FOLDED[name]
    x = torch.randn(shape)
    graph, folded = folding_graph(drawn(model), x)
    assert not any("batch_norm" in node.op for node in folded.nodes)
    assert folded.outputs == graph.outputs
    assert [folded.spec(name) for name in folded.outputs] == [graph.spec(name) for name in graph.outputs]
    want = copy.deepcopy(model).double()(x.double())
    (got,) = values_of(folded, model, (x,))
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", KEPT)
def test_other_norms_stay(name: str) -> None:
    model, shape = KEPT[name]
    graph, folded = folding_graph(drawn(model), torch.randn(shape, dtype=next(model.parameters()).dtype))
    assert folded is graph


def test_a_convolution_that_stays_with_pytorch_keeps_its_norm() -> None:
    graph = export(drawn(FOLDED["2d, bias"][0]), torch.randn(2, 6, 9, 9))
    stay = frozenset(node.name for node in graph.nodes if operator(node) == "conv2d")
    assert with_folded_norms(graph, stay) is graph


def _scaled(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A product whose weights are computed, also used elsewhere, and returned."""
    return torch.tanh(x @ (weight * torch.exp(scale)).t()), torch.exp(scale).sum()


def test_weights_that_are_computed_are_computed_once() -> None:
    graph = export(Computed(_scaled, torch.randn(24, 32), torch.randn(24, 1)), torch.randn(16, 32))
    schedule = initial(graph, "cuda", H200)[0]
    candidate = emit(graph, schedule)
    plan = candidate.plan
    written = {value for launch in plan.prepare for _, value in launch.args}
    assert {spec.name for spec in plan.packed} <= written
    assert written.isdisjoint(spec.name for spec in plan.outputs)
    assert "x0" not in written
    product = next(launch for launch in plan.launches if launch.library)
    assert any(value in {spec.name for spec in plan.packed} for _, value in product.args)
    assert parse(candidate) == (graph, schedule)


def test_what_no_library_reads_stays_in_its_kernel() -> None:
    shifted = Computed(lambda x, scale: torch.softmax(x * torch.exp(scale), -1), torch.randn(32))
    graph = export(shifted, torch.randn(16, 32))
    assert not emit(graph, initial(graph, "cuda", H200)[0]).plan.prepare


@pytest.mark.builds
@pytest.mark.slow
def test_kernels_of_prepare_compile(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(8, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64))
    graph = export(drawn(model), torch.randn(4, 8, 96, 96))
    schedule = initial(graph, "cuda", H200)[0]
    assert emit(graph, schedule).plan.prepare
    check_compiles(graph, schedule, tmp_path)


def _returned(x: torch.Tensor, w: torch.Tensor, view: bool, scans: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """A changed weight that a convolution, or a scan of it turned, reads; the weight or a view of it is a result."""
    w = w * 1.01
    read = w.transpose(0, 1).flatten().cumsum(0) * x if scans else torch.relu(x) @ w
    return read, w.view(-1) if view else w


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("scans", [False, True])
def test_what_is_computed_once_does_not_read_a_result(view: bool, scans: bool) -> None:
    """A result is written at each call, behind what is computed once."""
    model = Computed(lambda x, w: _returned(x, w, view, scans), torch.randn(48, 6))
    graph = export(model, torch.randn(288) if scans else torch.randn(64, 48))
    plan = emit(graph, initial(graph, "cuda", H200)[0]).plan
    touched = {value for launch in plan.prepare for _, value in launch.args}
    assert not touched & {output.name for output in plan.outputs}


def _joined(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, extra: torch.Tensor) -> torch.Tensor:
    images = torch.relu(nn.functional.conv2d(x, weight, bias))
    return torch.cat([images, extra[..., :148, :148].expand(x.shape[0], 8, 148, 148)], 1)


def test_a_copy_of_every_batch_is_not_kept() -> None:
    """Its size depends on the inputs; it is written with what is joined."""
    joined = Computed(_joined, torch.randn(24, 8, 3, 3), torch.randn(24), torch.randn(1, 8, 150, 150))
    graph = export(joined, torch.randn(7, 8, 150, 150))
    plan = emit(graph, initial(graph, "cuda", H200)[0]).plan
    assert not any("B" in spec.shape for spec in plan.packed)
