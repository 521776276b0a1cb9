"""Tiles that are transposed through shared memory in vectors: the emitted code runs on the CPU, where every read and
every vector is checked.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import read_schedule
from kernel_assistant.generator.search.search import initial
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import Built, Function, Tensors, check, export, resized
from tests.generator.test_cuda import H200

pytestmark = pytest.mark.builds


def _spread(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


MODULES: dict[str, tuple[torch.nn.Module, Tensors]] = {
    "matrices": (Function(lambda x: x.transpose(1, 2).contiguous() * 2 + 1), (_spread(3, 40, 72),)),
    "odd": (Function(lambda x: torch.tanh(x.transpose(1, 2)).contiguous()), (_spread(2, 37, 51),)),
    "odd stores": (Function(lambda x: torch.relu(x.transpose(1, 2)).contiguous()), (_spread(2, 37, 64),)),
    "odd loads": (Function(lambda x: torch.relu(x.transpose(1, 2)).contiguous()), (_spread(2, 64, 37),)),
    "to channels last": (Function(lambda x: x.permute(0, 2, 3, 1).contiguous()), (_spread(2, 16, 6, 10),)),
    "residual and bias": (
        Function(lambda x, y, b: torch.relu(x.permute(0, 3, 1, 2) + b.view(-1, 1, 1)) + y),
        (_spread(2, 6, 10, 24), _spread(2, 24, 6, 10), _spread(24)),
    ),
    "joined": (
        Function(lambda x, y: torch.relu(torch.cat([x.transpose(1, 2), y.transpose(1, 2)], 1)).contiguous()),
        (_spread(2, 40, 24), _spread(2, 40, 40)),
    ),
    "joined odd": (
        Function(lambda x, y: torch.cat([x.transpose(1, 2), y.transpose(1, 2)], 1).contiguous()),
        (_spread(2, 40, 6), _spread(2, 40, 26)),
    ),
    "on a diagonal": (
        Function(lambda x, y: (y + torch.diag_embed(x)).permute(2, 1, 0).contiguous()),
        (_spread(16, 16), _spread(16, 16, 16)),
    ),
    "halves": (Function(lambda x: (x.transpose(1, 2) * 2).contiguous()), (_spread(2, 48, 64).half(),)),
    "bfloat": (Function(lambda x: (x.transpose(1, 2) * 2).contiguous()), (_spread(2, 48, 64).bfloat16(),)),
}
CASES = [
    ("matrices", "tile=32"),
    ("matrices", "tile=32 vec=4 put=4"),
    ("matrices", "tile=64 vec=4 put=4"),
    ("matrices", "tile=16 vec=2 put=4 block=32"),
    ("odd", "tile=32"),
    ("odd stores", "tile=64 vec=4"),
    ("odd loads", "tile=32 put=4 block=128"),
    ("to channels last", "tile=32 vec=4 put=4"),
    ("residual and bias", "tile=32 vec=4 put=4"),
    ("residual and bias", "tile=64 vec=2 put=4 block=512"),
    ("joined", "tile=32 vec=4 put=4"),
    ("joined", "tile=16 vec=1 put=2 block=128"),
    ("joined odd", "tile=32 vec=2 put=2"),
    ("on a diagonal", "tile=16 block=64 vec=1 put=1"),
    ("halves", "tile=64 vec=8 put=8"),
    ("bfloat", "tile=64 vec=8 put=4"),
]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(("name", "line"), CASES)
def test_tiles_are_right(name: str, line: str, tmp_path: Path) -> None:
    model, args = MODULES[name]
    built = OnHost(export(model, *args), read_schedule("cuda", f"pointwise/transpose {line}"), tmp_path)
    check(model, args, built)
    if "B" in built.graph.dims and len(args) == 1:
        check(model, resized(args, 1), built)


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("odd", "vec=4", "not whole vectors"),
        ("odd stores", "put=2", "not whole vectors"),
        ("matrices", "tile=64 vec=8", "vectors of 8"),
        ("matrices", "vec=3", "vec=3"),
        ("matrices", "tile=16 block=512", "blocks of 512"),
        ("joined odd", "vec=4", "not whole vectors|only some"),
        ("on a diagonal", "tile=16 block=64 vec=2", "only some"),
    ],
)
def test_tiles_that_do_not_fit_are_refused(name: str, line: str, reason: str) -> None:
    model, args = MODULES[name]
    with pytest.raises(Unsupported, match=reason):
        emit(export(model, *args), read_schedule("cuda", f"pointwise/transpose {line}"))


@pytest.mark.parametrize(
    ("name", "widest"),
    [
        ("matrices", (4, 2)),
        ("joined", (4, 2)),
        ("odd", (1, 1)),
        ("odd stores", (4, 1)),
        ("odd loads", (1, 2)),
        ("halves", (8, 4)),
    ],
)
def test_wide_loads_come_first(name: str, widest: tuple[int, int]) -> None:
    model, args = MODULES[name]
    first = initial(export(model, *args), "cuda", H200)[0]
    assert (first["vec"], first["put"]) == widest


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODULES)
def test_first_schedules_are_right(name: str, tmp_path: Path) -> None:
    model, args = MODULES[name]
    graph = export(model, *args)
    for schedule in initial(graph, "cuda", H200):
        check(model, args, Built(graph, schedule, tmp_path))
