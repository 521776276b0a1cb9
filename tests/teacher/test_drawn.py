"""Answers for tasks of the sampler, with branches, narrow operands and pieces. They must be as accurate as PyTorch in
the same types, also at other sizes; answers for CUDA run on the emulator of a block, and on a GPU.
"""

from __future__ import annotations

import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from kernel_assistant.environment.builds.headers import INCLUDE
from kernel_assistant.targets import cpu
from kernel_assistant.worker.applied.binaries import driver
from kernel_assistant.worker.runner import executor
from kernel_assistant_training.teacher import answers
from tests.common.builds import build
from tests.skills.emulated import Emulated, compile_emulated
from tests.skills.harness import compile_cuda, unit_text
from tests.teacher.drawn_tasks import allowed, drawn
from tests.teacher.units import Written, cpu_unit, written

FAMILIES = ("branch", "inner", "pieces", "several", "group_norm")
HEADERS = [f"ka/{name}.h" for name in ("rows", "columns", "scan", "index", "transpose", "window")]
#: Tasks that are run where all can be compiled at once, and on a GPU.
FEW, MANY, SEED = 24, 120, 3
#: Sources that are compiled together there.
UNIT = 10
#: Every source has all names of its task's numbers in front.
UNUSED_NAMES = "#pragma nv_diag_suppress 177\n"


def _written(target: str, count: int) -> list[Written]:
    tasks = [task for task, _ in drawn(count, SEED, FAMILIES)]
    found = written(tasks, target, lambda one: answers(one.canonical, target, Random(0), 1))
    # Nearly everything that is drawn has an answer.
    assert len(found) >= 0.9 * count
    return found


@pytest.mark.builds
@pytest.mark.slow
def test_what_is_written_for_the_cpu_is_right(tmp_path: Path) -> None:
    found = _written("cpu", FEW)
    (tmp_path / "unit.cpp").write_text(cpu_unit(found, HEADERS))
    argv = [cpu.compiler(), *cpu.FLAGS, "-O1", *cpu.LINK_FLAGS, f"-I{INCLUDE}", "unit.cpp", "-o", "unit.so"]
    build(argv, tmp_path, "unit.so")
    executor.provide_openmp()
    wrong = _wrong(found, executor.CpuModule(str(tmp_path / "unit.so")), executor.bind, "cpu", (5, 3))
    assert not wrong, "\n".join(wrong)


@pytest.mark.builds
@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the emulator was written for x86-64")
def test_what_is_written_for_cuda_is_right(tmp_path: Path) -> None:
    found = _written("cuda", FEW)
    wrong = _wrong(found, compile_emulated([one.program for one in found], tmp_path), Emulated, "cpu", (3,))
    assert not wrong, "\n".join(wrong)


@pytest.mark.gpu
def test_what_is_written_for_cuda_is_right_on_a_gpu(tmp_path: Path) -> None:
    found = _written("cuda", MANY)
    torch.zeros(1, device="cuda")
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    parts = [found[begin : begin + UNIT] for begin in range(0, len(found), UNIT)]

    def compiled(place: int) -> bytes:
        folder = tmp_path / str(place)
        folder.mkdir()
        return compile_cuda(_text(parts[place]), folder, [arch])[arch].read_bytes()

    wrong = []
    with ThreadPoolExecutor() as pool:
        for part, cubin in zip(parts, pool.map(compiled, range(len(parts))), strict=True):
            module = executor.CudaModule(driver(torch.cuda.current_device()), cubin)
            wrong += _wrong(part, module, executor.bind, "cuda", (5, 3))
    assert not wrong, "\n".join(wrong)


def _text(found: list[Written]) -> str:
    return UNUSED_NAMES + unit_text([one.program for one in found])


def _wrong(found: list[Written], module: Any, bind: Any, device: str, sizes: tuple[int, ...]) -> list[str]:
    """The results whose error exceeds the limit: error and limit, the task and its answer."""
    wrong = []
    for one in found:
        for size in sizes:
            most = allowed(one.task, size)
            errors = one.errors(module, bind, size, device)
            if 0.0 in most:
                # Positions are those of the task's own types.
                own = one.errors(module, bind, size, device, exact=False)
                errors = [mine if limit == 0.0 else error for mine, error, limit in zip(own, errors, most, strict=True)]
            if not all(error <= limit for error, limit in zip(errors, most, strict=True)):
                head = f"{one.task.name}, B={size}: {errors} of {most}"
                wrong.append(f"{head}\n{one.task.canonical.text()}\n{one.program.source}")
    return wrong
