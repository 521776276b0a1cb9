"""Strips of windows, tiles that are transposed through shared memory, and computed positions inside joined and padded
tensors on CUDA: the emitted code runs on the CPU, where every read and every vector is checked.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import read_schedule
from kernel_assistant.generator.search.search import initial
from tests.generator.checks import check_on_gpu
from tests.generator.cuda_on_host import check_on_host
from tests.generator.harness import H200, graph_of, spread
from tests.generator.modules import Case, case
from tests.generator.window_modules import STRIPS, WINDOWS

pytestmark = pytest.mark.builds

TILES: dict[str, Case] = {
    "matrices": case(lambda x: x.transpose(1, 2).contiguous() * 2 + 1, spread(3, 40, 72)),
    "odd": case(lambda x: torch.tanh(x.transpose(1, 2)).contiguous(), spread(2, 37, 51)),
    "odd stores": case(lambda x: torch.relu(x.transpose(1, 2)).contiguous(), spread(2, 37, 64)),
    "odd loads": case(lambda x: torch.relu(x.transpose(1, 2)).contiguous(), spread(2, 64, 37)),
    "to channels last": case(lambda x: x.permute(0, 2, 3, 1).contiguous(), spread(2, 16, 6, 10)),
    "residual and bias": case(
        lambda x, y, b: torch.relu(x.permute(0, 3, 1, 2) + b.view(-1, 1, 1)) + y,
        *(spread(2, 6, 10, 24), spread(2, 24, 6, 10), spread(24)),
    ),
    "tiles joined": case(
        lambda x, y: torch.relu(torch.cat([x.transpose(1, 2), y.transpose(1, 2)], 1)).contiguous(),
        *(spread(2, 40, 24), spread(2, 40, 40)),
    ),
    "joined odd": case(
        lambda x, y: torch.cat([x.transpose(1, 2), y.transpose(1, 2)], 1).contiguous(),
        *(spread(2, 40, 6), spread(2, 40, 26)),
    ),
    "on a diagonal": case(
        lambda x, y: (y + torch.diag_embed(x)).permute(2, 1, 0).contiguous(), spread(16, 16), spread(16, 16, 16)
    ),
    "halves": case(lambda x: (x.transpose(1, 2) * 2).contiguous(), spread(2, 48, 64).half()),
    "bfloat": case(lambda x: (x.transpose(1, 2) * 2).contiguous(), spread(2, 48, 64).bfloat16()),
}
SHORT, LONG = spread(2, 8), spread(2, 512)
#: Nothing is read where a piece has no element.
MOVED: dict[str, Case] = {
    "rolled, joined": case(lambda x, y: torch.cat([torch.roll(x, 2, 1), y], 1), SHORT, LONG),
    "rolled, padded": case(lambda x, y: F.pad(torch.roll(x, 2, 1), (3, 501)) + y, SHORT, LONG),
    "flipped, joined": case(lambda x, y: torch.cat([y, torch.flip(x, (1,))], 1), SHORT, LONG),
    "rolled back, cut": case(lambda x, y: torch.cat([y, torch.roll(x, -3, 1)[:, 2:]], 1), SHORT, LONG),
    "rolled twice, joined": case(lambda x, y: torch.cat([torch.roll(torch.roll(x, 3, 1), 2, 0), y], 1), SHORT, LONG),
    "repeated, joined": case(lambda x, y: torch.cat([x.repeat_interleave(2, 1), y], 1), SHORT, LONG),
}
CASES = WINDOWS | STRIPS | TILES | MOVED
STRIP_LINES = [
    ("strip: even rows", "window/strip strip=4"),
    ("strip: even rows", "window/strip strip=16 stage=1 block=32"),
    ("strip: odd rows", "window/strip strip=4 block=64"),
    ("strip: odd rows", "window/strip strip=8 block=32 stage=1"),
    ("strip: halves", "window/strip strip=8 block=32 stage=1"),
    ("strip: long halves", "window/strip strip=16 block=64"),
    ("strip: images", "window/strip strip=4 rows=4 block=32"),
    ("strip: volumes", "window/strip strip=8 rows=2 block=32"),
    ("strip: volumes", "window/strip strip=4 stage=1 block=32"),
    ("strip: with nan", "window/strip strip=8 block=64"),
    ("strip: two", "window/strip strip=4 block=64 stage=1"),
]
LINES = [
    *STRIP_LINES,
    ("max 2d ceil", "window/strip strip=2 rows=2"),
    ("mixed", "window/strip strip=4"),
    ("channels last", "window/strip strip=8 rows=2"),
    ("fused", "window/strip strip=8 rows=4"),
    ("matrices", "pointwise/transpose tile=32"),
    ("matrices", "pointwise/transpose tile=32 vec=4 put=4"),
    ("matrices", "pointwise/transpose tile=64 vec=4 put=4"),
    ("matrices", "pointwise/transpose tile=16 vec=2 put=4 block=32"),
    ("odd", "pointwise/transpose tile=32"),
    ("odd stores", "pointwise/transpose tile=64 vec=4"),
    ("odd loads", "pointwise/transpose tile=32 put=4 block=128"),
    ("to channels last", "pointwise/transpose tile=32 vec=4 put=4"),
    ("residual and bias", "pointwise/transpose tile=32 vec=4 put=4"),
    ("residual and bias", "pointwise/transpose tile=64 vec=2 put=4 block=512"),
    ("tiles joined", "pointwise/transpose tile=32 vec=4 put=4"),
    ("tiles joined", "pointwise/transpose tile=16 vec=1 put=2 block=128"),
    ("joined odd", "pointwise/transpose tile=32 vec=2 put=2"),
    ("on a diagonal", "pointwise/transpose tile=16 block=64 vec=1 put=1"),
    ("halves", "pointwise/transpose tile=64 vec=8 put=8"),
    ("bfloat", "pointwise/transpose tile=64 vec=8 put=4"),
    *((name, "pointwise block=128") for name in MOVED),
]


@pytest.mark.parametrize(("name", "line"), LINES)
def test_values(name: str, line: str, tmp_path: Path) -> None:
    check_on_host(*CASES[name], line, tmp_path)


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("average 2d wide", "window/strip strip=16", "span 176 elements"),
        ("one output", "window/strip strip=2", "free length"),
        ("max 2d ceil", "window/strip strip=16", "strips of 16 outputs in rows of 14"),
        ("max 2d", "window/strip stage=1 block=128", "do not fill blocks"),
        ("strip: wide", "window/strip strip=8 stage=1 block=512", "bytes of shared memory"),
        ("max 1d dilated", "window/strip rows=2", "no rows of outputs"),
        ("odd", "pointwise/transpose vec=4", "not whole vectors"),
        ("odd stores", "pointwise/transpose put=2", "not whole vectors"),
        ("matrices", "pointwise/transpose tile=64 vec=8", "vectors of 8"),
        ("matrices", "pointwise/transpose vec=3", "vec=3"),
        ("matrices", "pointwise/transpose tile=16 block=512", "blocks of 512"),
        ("joined odd", "pointwise/transpose vec=4", "not whole vectors|only some"),
        ("on a diagonal", "pointwise/transpose tile=16 block=64 vec=2", "only some"),
    ],
)
def test_forms_that_do_not_fit_are_refused(name: str, line: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        emit(graph_of(CASES[name]), read_schedule("cuda", line))


WIDEST = {
    "matrices": (4, 2),
    "tiles joined": (4, 2),
    "odd": (1, 1),
    "odd stores": (4, 1),
    "odd loads": (1, 2),
    "halves": (8, 4),
}


@pytest.mark.parametrize(("name", "widest"), WIDEST.items())
def test_wide_loads_come_first(name: str, widest: tuple[int, int]) -> None:
    first = initial(graph_of(TILES[name]), "cuda", H200)[0]
    assert (first["vec"], first["put"]) == widest


@pytest.mark.gpu
@pytest.mark.parametrize("name", TILES)
def test_first_schedules_are_right(name: str, tmp_path: Path) -> None:
    check_on_gpu(*TILES[name], tmp_path)
