"""Tests depthwise convolutions that are turned to channels last, computed by a library or by our kernels."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.operators import COPY
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.lower.depthwise import BY_CHANNELS
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.plan.channels_last import is_channels_last
from kernel_assistant.generator.plan.partition import DEPTHWISE_FORMS, LibraryUse, Partition, cut, cut_for
from kernel_assistant.generator.search import search
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.generator.search.tensor_cores import splits_products
from kernel_assistant.records import OpGraph
from tests.generator.by_parts import ByParts
from tests.generator.harness import H200, Built, as_list, bindings, export

pytestmark = pytest.mark.sampled(3)


class Block(nn.Module):
    """As in MobileNetV2: products around a depthwise convolution, added to what comes in."""

    def __init__(self, act: type[nn.Module], depthwise: nn.Conv2d) -> None:
        super().__init__()
        inner, outer = depthwise.in_channels, depthwise.out_channels
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.expand = nn.Sequential(nn.Conv2d(16, inner, 1, bias=False), _norm(inner), act())
        self.depthwise = nn.Sequential(depthwise, _norm(outer), act())
        self.project = nn.Sequential(nn.Conv2d(outer, 16, 1, bias=False), _norm(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if y.shape == x.shape else y.relu()


def _norm(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels)
    torch.manual_seed(channels)
    assert norm.running_mean is not None and norm.running_var is not None
    for tensor in (norm.running_mean, norm.bias.data):
        tensor.normal_(0, 0.5)
    norm.running_var.uniform_(0.5, 1.5)
    return norm


def _depthwise(kernel: int, channels: int = 48, times: int = 1, **settings: object) -> nn.Conv2d:
    torch.manual_seed(kernel)
    return nn.Conv2d(channels, channels * times, kernel, groups=channels, **settings)  # type: ignore[arg-type]


CASES = {
    "whole": Block(nn.ReLU6, _depthwise(3, padding=1, bias=False)),
    "stride": Block(nn.ReLU6, _depthwise(3, padding=1, stride=2)),
    "silu, larger windows": Block(nn.SiLU, _depthwise(5, padding=2)),
    "gaps, no padding": Block(nn.ReLU, _depthwise(3, dilation=2)),
    "same size": Block(nn.ReLU, _depthwise(3, padding="same", dilation=2)),
    "channels that make no vectors": Block(nn.ReLU, _depthwise(3, channels=45, padding=1)),
    "two results for each channel": Block(nn.ReLU, _depthwise(3, times=2, padding=1)),
    "rectangle": Block(nn.ReLU, nn.Conv2d(48, 48, (1, 5), (1, 2), (0, 2), groups=48)),
}
X = torch.randn(5, 3, 62, 66, generator=torch.Generator().manual_seed(0))


def _graph(name: str) -> OpGraph:
    return export(CASES[name].eval(), X)


def _schedules(graph: OpGraph) -> dict[str, Schedule]:
    """The first schedule in which a library, or one of our kernels, computes depthwise convolutions with channels
    last."""
    found = initial(graph, "cuda", H200)
    return {use: next(one for one in found if form in one.forms()) for use, form in DEPTHWISE_FORMS.items()}


@pytest.mark.parametrize("name", CASES)
def test_both_are_tried_behind_the_first_guess(name: str) -> None:
    graph = _graph(name)
    found = _schedules(graph)
    assert set(found.values()) <= set(initial(graph, "cuda", H200)[1:4])
    groups: dict[str, list[int]] = {}
    for use, schedule in found.items():
        candidate = emit(graph, schedule)
        assert parse(candidate) == (graph, schedule)
        calls = [dict(one.settings) for one in candidate.plan.launches if one.library.startswith("cudnn")]
        assert {call["layout"] for call in calls} == {"nhwc"}
        groups[use] = [int(call["groups"]) for call in calls if call["groups"] != "1"]
        assert cut_for(graph, schedule).use.depthwise == use
    assert len(groups["library"]) == 1
    assert groups["kernel"] == []


def test_neighbours_keep_what_computes_them() -> None:
    graph = _graph("whole")
    for use, schedule in _schedules(graph).items():
        others = neighbours(graph, schedule, H200)[:20]
        assert others
        assert all(DEPTHWISE_FORMS[use] in other.forms() for other in others)  # type: ignore[index]


def test_our_kernel_reads_and_writes_channels_beside_each_other() -> None:
    """It also does what stands before and behind, and its filter is turned once."""
    parts = cut(_graph("whole"), "cuda", use=LibraryUse(depthwise="kernel")).parts
    (part,) = [one for one in parts if any(node.op.endswith(BY_CHANNELS) for node in one.graph.nodes)]
    fused = [node.op for node in part.graph.nodes if node.op in ("hardtanh", "getitem")]
    assert fused == ["hardtanh", "getitem", "hardtanh"]
    assert all(is_channels_last(part.graph.spec(output)) for output in part.graph.outputs)
    turned = [one for one in parts if one.once and [node.op for node in one.graph.nodes] == [COPY]]
    assert [one.graph.spec(one.outputs[0]).strides for one in turned][-1:] == [("1", "432", "144", "48")]


def test_functions_are_not_computed_for_each_position_of_a_window() -> None:
    """An exponential is worth a launch."""
    parts = cut(_graph("silu, larger windows"), "cuda", use=LibraryUse(depthwise="kernel")).parts
    before = next(one for one in parts if any(node.op.endswith(BY_CHANNELS) for node in one.graph.nodes))
    assert next(node.op for node in before.graph.nodes).endswith(BY_CHANNELS)


def test_a_pooling_of_all_is_a_part_of_its_own() -> None:
    """Else each thread would compute many outputs of the convolution, one after another, on a part of the GPU."""
    pooled = nn.Sequential(Block(nn.ReLU, _depthwise(3, padding=1)).depthwise, nn.AdaptiveAvgPool2d(1))
    model = nn.Sequential(nn.Conv2d(3, 48, 3, padding=1), pooled, nn.Conv2d(48, 8, 1))
    parts = cut(export(model.eval(), X), "cuda", use=LibraryUse(depthwise="kernel")).parts
    by_channels = [any(node.op.endswith(BY_CHANNELS) for node in part.graph.nodes) for part in parts]
    pools = [any(node.op.startswith("adaptive") for node in part.graph.nodes) for part in parts]
    assert (sum(by_channels), sum(pools)) == (1, 1)
    assert by_channels.index(True) != pools.index(True)


def test_gpus_that_do_not_split_products_try_both() -> None:
    graph = _graph("whole")
    device = replace(H200, name="L40S", arch="sm_89")
    assert not splits_products(device)
    found = initial(graph, "cuda", device)
    assert all(any(form in schedule.forms() for schedule in found) for form in DEPTHWISE_FORMS.values())


def test_a_first_guess_cuts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    uses = list[LibraryUse]()

    def noted(graph: OpGraph, target: str, use: LibraryUse) -> Partition:
        uses.append(use)
        return cut(graph, target, use=use)

    monkeypatch.setattr(search, "cut", noted)
    search._initial_text.cache_clear()
    graph = _graph("gaps, no padding")
    assert search.first_guess(graph, "cuda", H200) == initial(graph, "cuda", H200)[0]
    assert len(uses) == 1 + len({*uses[1:]})
    assert [use.depthwise for use in uses[:2]] == ["", ""]


def test_windows_that_are_not_written_out_go_to_the_library() -> None:
    model = Block(nn.ReLU, _depthwise(9, padding=4)).eval()
    parts = cut(export(model, X), "cuda", use=LibraryUse(depthwise="kernel")).parts
    assert not any(node.op.endswith(BY_CHANNELS) for part in parts for node in part.graph.nodes)


def test_a_schedule_names_one_that_computes_them() -> None:
    graph = _graph("whole")
    kernel, library = (_schedules(graph)[use] for use in ("kernel", "library"))
    (index, *_) = [at for at, part in enumerate(kernel.parts) if part.form == DEPTHWISE_FORMS["kernel"]]
    (other, *_) = [part for part in library.parts if part.form == DEPTHWISE_FORMS["library"]]
    with pytest.raises(Unsupported, match="by a library and by our kernels"):
        cut_for(graph, kernel.with_part(index, other))


def test_transposed_convolutions_of_single_channels_stay() -> None:
    model = nn.Sequential(nn.Conv2d(3, 48, 3), nn.ReLU(), nn.ConvTranspose2d(48, 48, 3, groups=48))
    found = initial(export(model.eval(), X), "cuda", H200)
    assert not any(form in schedule.forms() for schedule in found for form in DEPTHWISE_FORMS.values())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("use", DEPTHWISE_FORMS)
def test_values_by_parts(name: str, use: str, tmp_path: Path) -> None:
    """The parts that are cut for CUDA, with kernels for the CPU and PyTorch in place of libraries."""
    model, graph = CASES[name], _graph(name)
    parts = ByParts(graph, tmp_path, use=LibraryUse(depthwise=use))  # type: ignore[arg-type]
    with torch.no_grad():
        for x in (X, X[:1]):
            (got,), want = parts(bindings(graph, model, (x,))), model(x)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path) -> None:
    """At the exported sizes and at batch size one; TF32 is allowed, as in PyTorch."""
    model, graph = CASES[name], _graph(name)
    exact = copy.deepcopy(model).double()
    for schedule in _schedules(graph).values():
        built = Built(graph, schedule, tmp_path)
        for given in (X, X[:1]) if graph.dims else (X,):
            with torch.no_grad():
                wanted = as_list(exact(given.double()))
            for got, want in zip(built(bindings(graph, model, (given,))), wanted, strict=True):
                assert float((got.double() - want).abs().max() / want.abs().max()) < 3e-3
