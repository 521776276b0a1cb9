"""Results that depend on the order or the positions of values equal PyTorch's in the same type: for the CPU, and for
CUDA on the emulator of a block.
"""

from __future__ import annotations

import platform
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernel_assistant.environment.builds.headers import INCLUDE
from kernel_assistant.records.canonical import canonical
from kernel_assistant.targets import cpu
from kernel_assistant.worker.runner import executor
from kernel_assistant_training.teacher import answers
from kernel_assistant_training.teacher.rounding import rounded
from tests.common.builds import build
from tests.skills.emulated import Emulated, compile_emulated
from tests.teacher.units import Task, Tensors, Written, cpu_unit, task, written

SIZES = (1, 9)
#: A product of sums in half types, summed in another order, may be off by more than one rounding.
ALLOWED = 2.0
HEADERS = [f"ka/{name}.h" for name in ("pointwise", "rows", "columns", "scan", "index", "transpose", "window")]


def _two(size: int) -> Tensors:
    return torch.randn(size, 12, 320), torch.randn(size, 12, 320)


def _coarse(size: int) -> Tensors:
    """The sum of any two values has neighbours that a half type cannot distinguish from it."""
    return torch.randn(size, 12, 320) / 64 + 1, torch.randn(size, 12, 320) / 1024


def _one(size: int) -> Tensors:
    return (torch.randn(size, 12, 40),)


def _tasks() -> list[Task]:
    found = []
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).partition(".")[2]
        found += [
            task(f"place {name}", lambda x, y: ((x + y).argmax(-1), (x * 0.3 + y).argmin(1)), _coarse, dtype),
            task(f"held {name}", lambda x, y: F.relu(x + y).max(-1), _coarse, dtype),
            task(f"across {name}", lambda x, y: (x + y).min(1), _coarse, dtype),
            task(f"greater {name}", lambda x, y: torch.where(x + y > 1.003, x, -x), _coarse, dtype),
            task(f"loaded {name}", lambda x, y: torch.where(x > 1.003, x, -x) + y, _coarse, dtype),
            task(f"equal {name}", lambda x, y: torch.where(x == 1.003, y, -y) + F.hardshrink(x, 1.003), _coarse, dtype),
            task(f"rest {name}", lambda x, y: torch.remainder(x, 0.3) * y, _coarse, dtype),
            task(f"whole {name}", lambda x, y: torch.floor(x * 3 + y) * y, _two, dtype),
            task(f"parts {name}", lambda x, y: (x + y).mT.contiguous().flip(1).argmax(-1), _coarse, dtype),
        ]
    found.append(task("cut off", lambda x, y: torch.logit(x, 0.1) + torch.special.logit(y, 0.003), _two))
    for name, triangle in (("triu", torch.triu), ("tril", torch.tril)):
        found += [
            task(f"pooled {name}", lambda x, cut=triangle: F.max_pool1d(cut(x), 3, 1, 1), _one),
            task(f"behind a pool {name}", lambda x, cut=triangle: cut(F.avg_pool1d(x, 2)), _one),
            task(f"columns {name}", lambda x, cut=triangle: cut(x, 1).sum(1), _one),
            task(f"scanned {name}", lambda x, cut=triangle: cut(x).cumsum(-1), _one),
            task(f"behind a scan {name}", lambda x, cut=triangle: cut(x.cumsum(1), -2), _one),
            task(f"rows {name}", lambda x, cut=triangle: cut(x * 2).softmax(-1), _one),
        ]
    return found


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return _tasks()


@pytest.mark.builds
@pytest.mark.slow
def test_what_is_written_for_the_cpu_is_right(tasks: list[Task], tmp_path: Path) -> None:
    found = written(tasks, "cpu", lambda one: answers(one.canonical, "cpu", Random(0), 1))
    assert {one.task.name for one in found} == {one.name for one in tasks}
    (tmp_path / "unit.cpp").write_text(cpu_unit(found, HEADERS))
    argv = [cpu.compiler(), *cpu.FLAGS, "-O1", *cpu.LINK_FLAGS, f"-I{INCLUDE}", "unit.cpp", "-o", "unit.so"]
    build(argv, tmp_path, "unit.so")
    executor.provide_openmp()
    _check(found, executor.CpuModule(str(tmp_path / "unit.so")), executor.bind)


@pytest.mark.builds
@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the emulator was written for x86-64")
def test_what_is_written_for_cuda_is_right(tasks: list[Task], tmp_path: Path) -> None:
    found = written(tasks, "cuda", lambda one: answers(one.canonical, "cuda", Random(0), 1))
    assert {one.task.name for one in found} == {one.name for one in tasks}
    _check(found, compile_emulated([one.program for one in found], tmp_path), Emulated)


def _check(found: list[Written], module: Any, bind: Any) -> None:
    errors = {
        f"{one.task.name} of {size}": one.errors(module, bind, size, exact=False) for one in found for size in SIZES
    }
    assert {name: error for name, error in errors.items() if not all(part <= ALLOWED for part in error)} == {}


def test_what_is_loaded_or_of_float_is_not_rounded() -> None:
    for one in (
        task("loaded", lambda x, y: (F.relu(x).argmax(-1), torch.where(x > y, x, y)), _two, torch.bfloat16),
        task("float", lambda x, y: (x + y).argmax(-1), _two),
        task("sliced", lambda x, y: (x[..., :300].argmax(-1), torch.where(x > 0.5, y, x)), _two, torch.bfloat16),
        task("no place", lambda x, y: (x + y).max(-1)[0], _two, torch.bfloat16),
        task("elsewhere", lambda x, y: (x + y).softmax(-1), _two, torch.bfloat16),
    ):
        named = canonical(one.graph)
        assert rounded(named) is named
