"""Strips of windows on CUDA: the text of every way to place them, run on the CPU, and compiled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from kernel_assistant.generator.schedule import read_schedule
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import check, export
from tests.generator.window_modules import WINDOWS

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

CASES = [
    ("max 1d dilated", "window/strip block=32"),
    ("max 1d dilated", "window/strip block=64 stage=1 strip=2"),
    ("max 2d", "window/strip rows=4 block=32 strip=2"),
]


@pytest.mark.parametrize(("name", "line"), CASES)
def test_strips_are_right(name: str, line: str, tmp_path: Path) -> None:
    model, args = WINDOWS[name]
    check(model, args, OnHost(export(model, *args), read_schedule("cuda", line), tmp_path))
