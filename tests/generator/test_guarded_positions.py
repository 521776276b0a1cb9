"""Computed positions inside joined and padded tensors: nothing is read where a piece has no element. The emitted code
runs on the CPU, where every read is checked.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from kernel_assistant.generator.ir.schedule import read_schedule
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import Function, check, export

pytestmark = [pytest.mark.builds, pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")]

MODULES = {
    "rolled, joined": lambda x, y: torch.cat([torch.roll(x, 2, 1), y], 1),
    "rolled, padded": lambda x, y: functional.pad(torch.roll(x, 2, 1), (3, 501)) + y,
    "flipped, joined": lambda x, y: torch.cat([y, torch.flip(x, (1,))], 1),
    "rolled back, cut": lambda x, y: torch.cat([y, torch.roll(x, -3, 1)[:, 2:]], 1),
    "rolled twice, joined": lambda x, y: torch.cat([torch.roll(torch.roll(x, 3, 1), 2, 0), y], 1),
    "repeated, joined": lambda x, y: torch.cat([x.repeat_interleave(2, 1), y], 1),
}


@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_read_outside(name: str, tmp_path: Path) -> None:
    model, args = Function(MODULES[name]), (torch.randn(2, 8), torch.randn(2, 512))
    check(model, args, OnHost(export(model, *args), read_schedule("cuda", "pointwise block=128"), tmp_path))
