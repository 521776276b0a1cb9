"""Depthwise convolutions as windows with weights, on the CPU and as CUDA text on the host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.schedule import read_schedule
from kernel_assistant.generator.loops.checked import checked_nest
from kernel_assistant.generator.search.search import initial
from kernel_assistant.generator.support import classify
from tests.generator.checks import check, check_on_gpu, check_read_back
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import H200, bindings, built_on_cpu, export, resized

Image = tuple[int, ...]


class Beside(nn.Module):
    """Convolutions of inputs of their own, with work before and behind."""

    def __init__(self, convolutions: Sequence[nn.Module], fused: Sequence[bool]) -> None:
        super().__init__()
        self.convolutions, self.fused = nn.ModuleList(convolutions), fused

    def forward(self, *images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(
            torch.tanh(convolution(torch.relu(image))) if fused else convolution(image)
            for convolution, fused, image in zip(self.convolutions, self.fused, images, strict=True)
        )


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Module, torch.Tensor]:
    """A convolution of one to three dimensions, of rows that are wide enough, and its input."""
    rank, channels = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    each = [
        (draw(st.integers(1, 5)), draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(0, 3)))
        for _ in range(rank)
    ]
    kernel, stride, dilation, padding = (tuple(column) for column in zip(*each, strict=True))
    image = [draw(st.integers(10, 14)) for _ in range(rank - 1)] + [draw(st.integers(58, 75))]
    same = set(stride) == {1} and draw(st.booleans())
    dtype = draw(st.sampled_from([torch.float32, torch.float32, torch.float64, torch.bfloat16]))
    made = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1](
        channels,
        channels * draw(st.integers(1, 3)),
        kernel,
        stride,
        "same" if same else padding,
        dilation,
        groups=channels,
        bias=draw(st.booleans()),
        dtype=dtype,
    )
    return made, torch.randn(2, channels, *image).to(dtype)


@settings(max_examples=2, phases=[Phase.generate])
@given(drawn=st.lists(convolutions(), min_size=6, max_size=6), fused=st.lists(st.booleans(), min_size=6, max_size=6))
def test_on_the_cpu(
    drawn: list[tuple[nn.Module, torch.Tensor]], fused: list[bool], tmp_path_factory: pytest.TempPathFactory
) -> None:
    model, args = Beside([made for made, _ in drawn], fused), tuple(image for _, image in drawn)
    graph = export(model, *args)
    built = built_on_cpu(graph, tmp_path_factory.mktemp("depthwise"))
    assert not built.candidate.plan.residual
    check(model, args, built)
    check(model, resized(args, 1), built)


CASES: dict[str, tuple[nn.Module, Image]] = {
    "7 x 7": (nn.Conv2d(3, 3, 7, padding=3, groups=3), (2, 3, 11, 40)),
    "strides, two each": (nn.Conv2d(3, 6, (3, 5), (2, 2), (1, 2), groups=3, bias=False), (2, 3, 12, 61)),
    "dilated": (nn.Conv2d(2, 2, 3, dilation=(2, 3), padding="same", groups=2), (2, 2, 9, 70)),
    "uneven padding": (nn.Conv1d(4, 4, 4, padding="same", groups=4), (3, 4, 90)),
    "down only": (nn.Conv2d(4, 4, (5, 1), padding=(2, 0), groups=4), (2, 4, 9, 32)),
    "fused": (nn.Sequential(nn.ReLU(), nn.Conv3d(2, 2, 2, groups=2), nn.Tanh()), (2, 2, 4, 5, 30)),
}
LINES = [
    ("7 x 7", "window/direct block=64 rows=1"),
    ("7 x 7", "window/direct block=64 rows=8"),
    ("strides, two each", "window/direct block=64 rows=4"),
    ("dilated", "window/direct block=64 rows=2"),
    ("uneven padding", "window/direct block=128 rows=1"),
    ("down only", ""),
    ("fused", "window/direct block=64 rows=2"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "line"), LINES)
def test_on_cuda_text(name: str, line: str, tmp_path: Path) -> None:
    model, shape = CASES[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    graph = export(model, x)
    schedule = read_schedule("cuda", line) if line else initial(graph, "cuda", H200)[0]
    (found,) = OnHost(graph, schedule, tmp_path)(bindings(graph, model, (x,)))
    with torch.no_grad():
        torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_families_and_schedules(name: str) -> None:
    model, shape = CASES[name]
    graph = export(model, torch.randn(shape))
    family = "pointwise" if name == "down only" else "window"
    assert checked_nest(graph, "cuda").family == checked_nest(graph, "cpu").family == family
    schedules = initial(graph, "cuda", H200)
    check_read_back(graph, schedules)
    launches = [launch for schedule in schedules for launch in emit(graph, schedule).plan.launches]
    assert {launch.library for launch in launches} == {""}


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Conv2d(4, 4, 3, padding=1, groups=4), torch.randn(2, 4, 9, 9)),
        (nn.Conv2d(4, 8, 3, padding=1, groups=2), torch.randn(2, 4, 9, 40)),
        (nn.Conv2d(4, 4, 3, padding=1, groups=4), torch.randn(2, 4, 9, 40).to(memory_format=torch.channels_last)),
    ],
    ids=["narrow", "groups", "channels last"],
)
def test_the_others_are_a_library_s(model: nn.Module, x: torch.Tensor) -> None:
    graph = export(model, x)
    assert any(launch.library for launch in emit(graph, initial(graph, "cuda", H200)[0]).plan.launches)
    assert classify(graph, "cpu").startswith("operator conv2d: nothing is left")


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_right_on_the_gpu(name: str, tmp_path: Path) -> None:
    model, shape = CASES[name]
    check_on_gpu(model, (torch.randn(shape),), tmp_path, 4)
