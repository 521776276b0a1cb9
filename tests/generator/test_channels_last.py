"""Tests convolutions that are changed to channels last: which of them, the operators around them, and the values on a
GPU.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.operators import COPY
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.plan.channels_last import AGAIN, COPY_BACK, channels_last, is_channels_last
from kernel_assistant.generator.plan.partition import FIRST_FORM, cut
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import OpGraph
from tests.generator.by_parts import ByParts
from tests.generator.harness import H200, Built, Computed, Function, as_list, bindings, export

pytestmark = pytest.mark.sampled(3)


def _branches(x: torch.Tensor, wide: nn.Module, narrow: nn.Module, pooled: nn.Module) -> torch.Tensor:
    """Convolutions side by side, one of them behind a pooling, whose results are joined."""
    return torch.cat([wide(x), narrow(x), pooled(x)], 1)


def _pooled_both(x: torch.Tensor, one: nn.Module, other: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """A pooling that is a result, and that convolutions with channels last read."""
    pooled = F.max_pool2d(x, 3, 1, 1)
    return one(x) + other(pooled), pooled


def _around_norm(x: torch.Tensor, conv: nn.Module, norm: nn.Module) -> torch.Tensor:
    """A group norm with a path around it."""
    x = F.silu(conv(x))
    return torch.logsumexp(x + torch.tanh(norm(x)), 1)


def _beside_norm(x: torch.Tensor, conv: nn.Module, norm: nn.Module, other: nn.Module) -> torch.Tensor:
    """A group norm whose result is read behind another convolution."""
    x = F.silu(conv(x))
    normalized, beside = norm(x), torch.exp(-x * x)
    return torch.tanh(other(beside) + normalized)


def _chain(x: torch.Tensor, one: nn.Module, other: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """A residual sum over two convolutions; the first one is also a result."""
    first = one(x)
    return first, torch.relu(other(torch.relu(first)) + x)


def _conv(channels: int, results: int) -> nn.Module:
    return nn.Conv2d(channels, results, 3, padding=1)


def _image(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


LARGE, SMALL, VOLUME = _image(7, 8, 150, 150), _image(7, 8, 97, 101), _image(3, 8, 16, 17, 19)
CASES = {
    "bare": (nn.Sequential(nn.Conv2d(8, 24, 3)), LARGE),
    "relu and scaling": (nn.Sequential(nn.Conv2d(8, 24, 3), nn.ReLU(), nn.Hardtanh()), LARGE),
    "least channel": (
        nn.Sequential(nn.Conv2d(8, 24, 3), Function(lambda x: torch.tanh(torch.min(x, dim=1, keepdim=True)[0]))),
        LARGE,
    ),
    "pooling": (nn.Sequential(nn.Conv2d(8, 24, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)), LARGE),
    "group norm": (nn.Sequential(nn.Conv3d(8, 16, 3), nn.SiLU(), nn.GroupNorm(4, 16)), _image(5, 8, 18, 34, 50)),
    "instance norm": (nn.Sequential(nn.Conv2d(8, 24, 3), nn.InstanceNorm2d(24, affine=True)), LARGE),
    "beside a norm": (Computed(_beside_norm, nn.Conv2d(8, 16, 3), nn.GroupNorm(4, 16), _conv(16, 16)), SMALL),
    "group norm, pooling": (nn.Sequential(nn.Conv2d(8, 16, 3), nn.GroupNorm(4, 16), nn.MaxPool2d(4)), SMALL),
    "around a norm": (Computed(_around_norm, nn.Conv2d(8, 16, 3), nn.GroupNorm(4, 16)), SMALL),
    "batch norm to group norm": (
        nn.Sequential(
            nn.ConvTranspose2d(8, 16, 5), nn.BatchNorm2d(16), nn.Tanh(), nn.MaxPool2d(2), nn.GroupNorm(4, 16)
        ),
        SMALL,
    ),
    "layer norm, average": (
        nn.Sequential(nn.ConvTranspose3d(8, 16, 3, stride=2), nn.LayerNorm(39), nn.AvgPool3d(2), nn.GELU()),
        VOLUME,
    ),
    "mean of all": (nn.Sequential(nn.Conv2d(8, 24, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), LARGE),
    "transposed, softmax": (nn.Sequential(nn.ConvTranspose3d(8, 16, 3, stride=2), nn.Softmax(1)), VOLUME),
    "transposed, grouped": (
        nn.Sequential(nn.ConvTranspose2d(8, 16, 4, 2, 1, groups=2), nn.GELU()),
        _image(3, 8, 97, 101),
    ),
    "chain": (Computed(_chain, _conv(8, 8), _conv(8, 8)), LARGE),
    "pooling is a result": (Computed(_pooled_both, _conv(8, 16), _conv(8, 16)), LARGE),
    "branches": (
        Computed(
            _branches, _conv(8, 24), nn.Conv2d(8, 8, 1), nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(8, 16, 1))
        ),
        LARGE,
    ),
    "three channels": (nn.Sequential(nn.Conv2d(3, 24, 5, stride=2), nn.SiLU()), _image(7, 3, 301, 303)),
}


def _graph(name: str) -> OpGraph:
    model, x = CASES[name]
    return export(model.eval(), x)


@pytest.mark.parametrize("name", CASES)
def test_convolutions_are_done_with_channels_last(name: str) -> None:
    graph = _graph(name)
    for schedule in [one for one in initial(graph, "cuda", H200)[:3] if FIRST_FORM not in one.forms()]:
        candidate = emit(graph, schedule)
        calls = [launch for launch in candidate.plan.launches if launch.library.startswith("cudnn")]
        assert calls
        assert all(dict(launch.settings)["layout"] == "nhwc" for launch in calls)
        assert parse(candidate) == (graph, schedule)


def test_convolutions_are_as_exact_as_torch_compiles() -> None:
    """With groups torch.compile, like eager mode, reads channels first, where fewer engines use tensor cores."""
    for name, order in {"bare": "nhwc", "three channels": "nhwc", "transposed, grouped": "nchw"}.items():
        graph = _graph(name)
        launches = emit(graph, initial(graph, "cuda", H200)[0]).plan.launches
        assert [dict(one.settings)["given"] for one in launches if one.library.startswith("cudnn")] == [order]


def test_channels_first_are_tried_too() -> None:
    """Where PyTorch's engine for them is exact, tensor cores' order of memory may be much slower."""
    graph = export(nn.Sequential(nn.ConvTranspose3d(8, 16, 3, stride=2), nn.GELU()), VOLUME)
    last, first, *rest = initial(graph, "cuda", H200)
    assert [FIRST_FORM in schedule.forms() for schedule in (last, first, *rest)] == [False, True, *[False] * len(rest)]
    candidate = emit(graph, first)
    (call,) = [launch for launch in candidate.plan.launches if launch.library]
    assert {dict(call.settings)[name] for name in ("layout", "given")} == {"nchw"}
    assert parse(candidate) == (graph, first)
    assert all(FIRST_FORM in other.forms() for other in neighbours(graph, first, H200))


def test_what_reads_across_gets_channels_first() -> None:
    graph = export(nn.Sequential(nn.Conv2d(8, 24, 3), nn.Flatten(), nn.Softmax(1)).eval(), LARGE)
    parts = cut(graph, "cuda").parts
    assert any(node.op == COPY_BACK for part in parts for node in part.graph.nodes)
    assert not any(value.spec.strides for value in parts[-1].graph.inputs)


@pytest.mark.parametrize(
    ("name", "forms"),
    [
        ("least channel", ["rows/"]),
        ("transposed, softmax", ["cols/"]),
        ("mean of all", ["cols/"]),
        ("instance norm", ["cols/", "pointwise/transpose"]),
        ("pooling", ["pointwise ", "pointwise/transpose"]),
        ("group norm", ["rows/", "pointwise/transpose"]),
        ("around a norm", ["rows/", "rows/"]),
        ("group norm, pooling", ["rows/", "pointwise ", "pointwise/transpose"]),
        ("batch norm to group norm", ["rows/", "pointwise/transpose"]),
        ("layer norm, average", ["cols/", "pointwise ", "pointwise/transpose"]),
    ],
)
def test_channels_are_read_where_they_lie(name: str, forms: list[str]) -> None:
    """The operators after the convolution read its layout; only the pooled value is converted back, by a launch of its
    own.
    """
    graph = _graph(name)
    assert (name in ("pooling", "group norm, pooling")) == any(
        node.op == COPY_BACK for part in cut(graph, "cuda").parts for node in part.graph.nodes
    )
    texts = [schedule.text() for schedule in initial(graph, "cuda", H200)[0].parts]
    found = texts[texts.index("library") + 1 :]
    assert len(found) == len(forms)
    assert all(text.startswith(form) for text, form in zip(found, forms, strict=True))


def test_what_a_norm_reads_is_computed_again_around_it() -> None:
    """The launch of the moments does not write the convolution's activations."""
    parts = cut(_graph("around a norm"), "cuda").parts
    moments = next(part.graph for part in parts if any(node.op == "ka_group_moments" for node in part.graph.nodes))
    assert [len(moments.spec(name).shape) for name in moments.outputs] == [2, 2]


def test_what_has_to_be_written_is_not_computed_again() -> None:
    parts = cut(_graph("beside a norm"), "cuda").parts
    assert any(node.op == "ka_group_moments" for part in parts for node in part.graph.nodes)
    assert not any(name.endswith(AGAIN) for part in parts for name in part.outputs)


def test_branches_are_joined_by_one_kernel_and_share_their_input() -> None:
    """Biases are added where the branches are joined, and the pooling reads the copy that the convolutions read."""
    graph = _graph("branches")
    parts, schedule = cut(graph, "cuda").parts, initial(graph, "cuda", H200)[0]
    kernels = [part.graph for part in parts if part.kind == "kernel" and not part.once]
    copy, pooling, join = ([node.op.split(".")[0] for node in kernel.nodes] for kernel in kernels)
    assert (copy, pooling, join) == ([COPY], ["max_pool2d"], ["add", "add", "add", "cat"])
    assert schedule.parts[-1].form == "pointwise/transpose"


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Conv2d(8, 24, 1), LARGE),
        (nn.Conv2d(2, 24, 3), _image(7, 2, 150, 150)),
        (nn.Conv3d(3, 24, 3), _image(3, 3, 20, 60, 60)),
        (nn.Conv2d(8, 24, 3), _image(1, 8, 20, 20)),
        (nn.Conv1d(8, 24, 3), _image(7, 8, 65536)),
    ],
    ids=["filter of one element", "two channels", "three channels of a volume", "small", "one dimension"],
)
def test_others_stay_as_they_are(model: nn.Module, x: torch.Tensor) -> None:
    graph = export(model, x)
    assert channels_last(graph, {node.name for node in graph.nodes}) == graph


def test_products_between_depthwise_convolutions_stay_as_they_are() -> None:
    """As in MobileNet, where two transpositions cost more than channels last bring; as in ResNet they follow."""
    apart = [nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU(), nn.Conv2d(16, 24, 1), nn.ReLU()]
    beside = [nn.Conv2d(16, 24, 1), nn.ReLU(), nn.Conv2d(24, 8, 3, padding=1)]
    for layers, turned in ((apart, [True, False, False]), (beside, [True, True, True])):
        graph = export(nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), *layers).eval(), _image(7, 3, 150, 150))
        found = channels_last(graph, {node.name for node in graph.nodes})
        convolutions = [node for node in found.nodes if node.op.startswith("conv2d")]
        assert [is_channels_last(node.spec) for node in convolutions] == turned


def test_a_filter_of_one_channel_lies_both_ways() -> None:
    """A depthwise convolution of an input in channels last, then a norm over the channels."""
    over = Function(lambda x: x.permute(0, 2, 3, 1))
    model = nn.Sequential(nn.Conv2d(16, 16, 7, padding=3, groups=16), over, nn.LayerNorm(16))
    graph = export(model, _image(7, 16, 20, 20).contiguous(memory_format=torch.channels_last))
    schedule = initial(graph, "cuda", H200)[0]
    assert [part.form.partition("/")[0] for part in schedule.parts] == ["library", "rows"]


@pytest.mark.parametrize("between", [[], [nn.ReLU()]], ids=["result", "after an activation"])
def test_a_call_of_pytorch_reads_what_a_convolution_gives(between: list[nn.Module], tmp_path: Path) -> None:
    """Its pooling windows have two sizes, which nobody writes."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3), *between, nn.AdaptiveAvgPool2d(8), nn.Tanh())
    x = _image(8, 3, 102, 102)
    graph = export(model, x)
    parts = ByParts(graph, tmp_path)
    assert "residual" in parts.kinds
    assert COPY in {node.op for part in parts.found.parts for node in part.graph.nodes}
    with torch.no_grad():
        torch.testing.assert_close(parts(bindings(graph, model, (x,)))[0], model(x), rtol=1e-4, atol=1e-5)


def test_a_layout_that_the_user_chose_is_kept() -> None:
    layout = torch.channels_last
    model = nn.Conv2d(8, 24, 3).to(memory_format=layout)  # type: ignore[call-overload]
    graph = export(model, LARGE.contiguous(memory_format=layout))
    assert not any(node.op.startswith(COPY) for part in cut(graph, "cuda").parts for node in part.graph.nodes)


@pytest.mark.parametrize("name", ["around a norm", "beside a norm", "group norm, pooling"])
def test_values_by_parts(name: str, tmp_path: Path) -> None:
    """The parts that are cut for CUDA, with kernels for the CPU and PyTorch in place of libraries."""
    (model, x), graph = CASES[name], _graph(name)
    with torch.no_grad():
        (got,), want = ByParts(graph, tmp_path)(bindings(graph, model, (x,))), model(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path) -> None:
    """At the exported sizes, at another batch size, and at batch size one; TF32 is allowed, as in PyTorch."""
    (model, x), graph = CASES[name], _graph(name)
    exact = copy.deepcopy(model).double()
    for schedule in initial(graph, "cuda", H200)[:3]:
        built = Built(graph, schedule, tmp_path)
        for given in (x, x[:2], x[:1]) if graph.dims else (x,):
            with torch.no_grad():
                wanted = as_list(exact(given.double()))
            for got, want in zip(built(bindings(graph, model, (given,))), wanted, strict=True):
                assert got.shape == want.shape
                assert float((got.double() - want).abs().max() / want.abs().max()) < 3e-3
