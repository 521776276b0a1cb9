"""Strips of windows on CUDA: the emitted code runs on the CPU, where every read and every vector is checked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import read_schedule
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import check, export, resized
from tests.generator.window_modules import STRIPS, WINDOWS

pytestmark = pytest.mark.builds

CASES = [
    ("strip: even rows", "strip=4"),
    ("strip: even rows", "strip=16 stage=1 block=32"),
    ("strip: odd rows", "strip=4 block=64"),
    ("strip: odd rows", "strip=8 block=32 stage=1"),
    ("strip: halves", "strip=8 block=32 stage=1"),
    ("strip: long halves", "strip=16 block=64"),
    ("strip: images", "strip=4 rows=4 block=32"),
    ("strip: volumes", "strip=8 rows=2 block=32"),
    ("strip: volumes", "strip=4 stage=1 block=32"),
    ("strip: with nan", "strip=8 block=64"),
    ("strip: two", "strip=4 block=64 stage=1"),
    ("max 2d ceil", "strip=2 rows=2"),
    ("mixed", "strip=4"),
    ("channels last", "strip=8 rows=2"),
    ("fused", "strip=8 rows=4"),
]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(("name", "line"), CASES)
def test_strips_are_right(name: str, line: str, tmp_path: Path) -> None:
    model, args = {**WINDOWS, **STRIPS}[name]
    built = OnHost(export(model, *args), read_schedule("cuda", f"window/strip {line}"), tmp_path)
    check(model, args, built)
    if "B" in built.graph.dims:
        check(model, resized(args, 1), built)


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("average 2d wide", "strip=16", "span 176 elements"),
        ("one output", "strip=2", "free length"),
        ("max 2d ceil", "strip=16", "strips of 16 outputs in rows of 14"),
        ("max 2d", "stage=1 block=128", "do not fill blocks"),
        ("strip: wide", "strip=8 stage=1 block=512", "bytes of shared memory"),
        ("max 1d dilated", "rows=2", "no rows of outputs"),
    ],
)
def test_strips_that_do_not_fit_are_refused(name: str, line: str, reason: str) -> None:
    model, args = {**WINDOWS, **STRIPS}[name]
    with pytest.raises(Unsupported, match=reason):
        emit(export(model, *args), read_schedule("cuda", f"window/strip {line}"))
