"""Norms and reductions over a dimension that is not contiguous: loads along the columns and stores along R, and the
reverse.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.graph_text import read_graph
from kernel_assistant.generator.ir.schedule import read_schedule
from kernel_assistant.generator.loops.checked import checked_nest
from kernel_assistant.generator.search.search import initial
from tests.generator.checks import check, check_compiles, check_on_gpu
from tests.generator.cuda_on_host import OnHost, check_on_host
from tests.generator.harness import H200, Built, Computed, Function, export, graph_of, resized
from tests.generator.modules import Case, case

pytestmark = pytest.mark.builds


def _over_channels(channels: int) -> nn.Module:
    """A norm over the channels as in torchvision; its result is in channels last."""
    norm = nn.LayerNorm(channels)
    with torch.no_grad():
        for number, weight in enumerate(norm.parameters()):
            weight += torch.linspace(number, number + 1, channels)
    return Computed(lambda x, norm: norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), norm)


def _image(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)) * 2 + 3


def _last(*shape: int) -> torch.Tensor:
    return _image(*shape).contiguous(memory_format=torch.channels_last)


CASES: dict[str, Case] = {
    "layer norm": (_over_channels(24), (_image(3, 24, 8, 12),)),
    "odd": (_over_channels(19), (_image(3, 19, 7, 5),)),
    "half": (_over_channels(24).bfloat16(), (_image(2, 24, 8, 10).bfloat16(),)),
    "to first": case(lambda x: F.softmax(x, 1).contiguous(), _last(3, 20, 6, 7)),
    "least": case(lambda x: x.amin(1) + x.argmin(1), _last(3, 20, 6, 7)),
    "pooled": case(lambda x: F.max_pool2d(x, 3, 2, 1), _last(3, 20, 9, 10)),
    "both moments": case(lambda x: (x.mean((2, 3)), x.var((2, 3))), _last(3, 20, 16, 18)),
    "narrow": (nn.LayerNorm(24), (_image(3, 8, 12, 24),)),
    "moments": case(lambda x: torch.var_mean(x, (2, 3)), _last(3, 20, 16, 18)),
}
LINES = [
    ("layer norm", "cols/reg tx=8 ty=16 vec=4 items=2"),
    ("layer norm", "cols/reg tx=16 ty=4 vec=2 items=6"),
    ("layer norm", "cols/stream tx=8 ty=8 vec=4 unroll=2"),
    ("layer norm", "cols/split tx=32 ty=2 vec=1 unroll=2 parts=2"),
    ("odd", "cols/reg tx=8 ty=4 items=5 vec=1"),
    ("odd", "cols/stream tx=32 ty=2 unroll=2 vec=1"),
    ("odd", "cols/split tx=32 ty=2 unroll=2 parts=3 vec=1"),
    ("half", "cols/reg tx=8 ty=4 items=6 vec=8"),
    ("half", "cols/stream tx=8 ty=4 unroll=4 vec=8"),
    ("to first", "cols/reg tx=8 ty=4 items=5"),
    ("to first", "cols/stream tx=32 ty=1 unroll=4"),
    ("narrow", "rows/warp block=64 lanes=8 vec=2 items=2"),
    ("narrow", "rows/warp block=32 lanes=4 vec=4 items=2"),
    ("pooled", "pointwise block=64 vec=4 unroll=2"),
    ("moments", "cols/stream tx=8 ty=8 vec=4"),
    ("moments", "cols/split tx=8 ty=8 vec=4 parts=5"),
]
IDS = [f"{number} {name} {line}" for number, (name, line) in enumerate(LINES)]


@pytest.mark.parametrize(("name", "line"), LINES, ids=IDS)
def test_values(name: str, line: str, tmp_path: Path) -> None:
    check_on_host(*CASES[name], line, tmp_path)


@pytest.mark.parametrize(
    "line", ["cols/reg tx=8 ty=4 items=6 vec=4", "cols/stream tx=8 ty=4 unroll=2", "cols/split tx=8 ty=4 parts=3 vec=4"]
)
def test_equal_values_have_exactly_that_mean(line: str, tmp_path: Path) -> None:
    """This holds in PyTorch too: otherwise a rounding error of the mean would be multiplied by the inverse of a zero
    deviation.
    """
    model = Function(lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (24,)).permute(0, 3, 1, 2))
    x = torch.linspace(0.1, 7, 96).reshape(1, 1, 8, 12).expand(3, 24, 8, 12).contiguous()
    (found,) = OnHost(export(model, x), read_schedule("cuda", line), tmp_path)({"x0": x})
    assert not found.any()


GROUPS = """dims B=3
input x0 f32[B,24,5,9]/1080,1,216,24
param p0 f32[24] weight
param p1 f32[24] bias
%n0 = ka_group_moments(%x0, 3, 0.001) f32[B,3]
%n1 = getitem(%n0, 0) f32[B,3]
%n2 = getitem(%n0, 1) f32[B,3]
%n3 = ka_by_moments(%n1, %n2, %x0, 3, %p0, %p1) f32[B,24,5,9]
return %n3"""


def test_a_norm_over_groups_in_two_launches(tmp_path: Path) -> None:
    """Each launch is tested as the graph of its part: vectors of channels in one, transposed tiles in the other."""
    whole = GROUPS.splitlines()
    moments = [*whole[:2], *whole[4:7], "return %n1, %n2"]
    made = [*whole[:4], "input x1 f32[B,3]", "input x2 f32[B,3]", whole[7].replace("%n1, %n2", "%x1, %x2"), whole[8]]
    x, weight, bias = _last(3, 24, 5, 9), torch.linspace(1, 2, 24), torch.linspace(-1, 1, 24)
    (first, second) = (tmp_path / name for name in ("moments", "made"))
    first.mkdir()
    second.mkdir()
    found = OnHost(read_graph(moments), read_schedule("cuda", "rows/stream block=64 vec=4"), first)({"x0": x})
    values = {"x0": x, "x1": found[0], "x2": found[1], "p0": weight, "p1": bias}
    built = OnHost(read_graph(made), read_schedule("cuda", "pointwise/transpose tile=16 vec=4 block=64"), second)
    torch.testing.assert_close(built(values)[0], F.group_norm(x, 3, weight, bias, 0.001))


@pytest.mark.parametrize(
    ("name", "family"),
    [("layer norm", "cols"), ("to first", "cols"), ("least", "rows"), ("moments", "cols"), ("pooled", "pointwise")],
)
def test_loops_follow_the_memory(name: str, family: str) -> None:
    assert checked_nest(graph_of(CASES[name]), "cuda").family == family


def test_channels_that_lie_together_are_rows() -> None:
    graph = export(_over_channels(24), _last(3, 24, 8, 12))
    assert checked_nest(graph, "cuda").family == "rows"
    assert initial(graph, "cuda", H200)[0].form.startswith("rows/")


def test_small_tiles_come_first() -> None:
    graph = export(_over_channels(96), _image(8, 96, 56, 56))
    schedules = initial(graph, "cuda", H200)
    assert [schedule["tx"] * schedule["vec"] for schedule in schedules[:2]] == [32, 32]
    assert emit(graph, schedules[0]).plan.launches[0].shared != "0"


def test_tiles_have_to_fit() -> None:
    with pytest.raises(Unsupported, match="shared memory"):
        emit(graph_of(CASES["layer norm"]), read_schedule("cuda", "cols/stream tx=64 ty=16 vec=4 unroll=16"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "line"), [LINES[0], LINES[3], LINES[10], LINES[12], ("both moments", "cols/split")])
def test_they_compile(name: str, line: str, tmp_path: Path) -> None:
    check_compiles(graph_of(CASES[name]), read_schedule("cuda", line), tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "line"), LINES, ids=IDS)
def test_values_on_a_gpu(name: str, line: str, tmp_path: Path) -> None:
    model, args = CASES[name]
    built = Built(export(model, *args), read_schedule("cuda", line), tmp_path)
    check(model, args, built)
    check(model, resized(args, 1), built)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_all_first_schedules(name: str, tmp_path: Path) -> None:
    check_on_gpu(*CASES[name], tmp_path)
