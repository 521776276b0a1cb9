"""Elementwise kernels, rows and several kernels: every answer is compared with PyTorch in float64, also at other sizes;
answers for CUDA run on the emulator of a block.
"""

from __future__ import annotations

import platform
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from kernel_assistant.environment.builds.headers import INCLUDE
from kernel_assistant.targets import cpu
from kernel_assistant.worker.applied.binaries import driver
from kernel_assistant.worker.runner import executor
from kernel_assistant_training.teacher import Answer, answers
from tests.common.builds import build
from tests.skills.emulated import Emulated, compile_emulated
from tests.skills.harness import compile_cuda, unit_text
from tests.teacher.nest_tasks import tasks
from tests.teacher.units import Task, Written, cpu_unit, written

SIZES = (1, 3, 8)
TASKS = {one.name: one for one in tasks()}
#: What is computed from rounded weights may be off by more than one rounding of the result.
HALF_TYPES = 2.0
#: Every source has all names of its task's numbers in front.
UNUSED_NAMES = "#pragma nv_diag_suppress 177\n"


def _answers(target: str, count: int) -> Any:
    def of(task: Task) -> list[Answer]:
        found = answers(task.canonical, target, Random(0), count)
        assert found, task.canonical.text()
        return found

    return of


@pytest.fixture(scope="module")
def for_cpu(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Written], Any]:
    folder: Path = tmp_path_factory.mktemp("cpu")
    found = written(TASKS.values(), "cpu", _answers("cpu", 1))
    (folder / "unit.cpp").write_text(cpu_unit(found, ("ka/pointwise.h", "ka/rows.h")))
    argv = [cpu.compiler(), *cpu.FLAGS, *cpu.LINK_FLAGS, f"-I{INCLUDE}", "unit.cpp", "-o", "unit.so"]
    build(argv, folder, "unit.so")
    executor.provide_openmp()
    return found, executor.CpuModule(str(folder / "unit.so"))


@pytest.fixture(scope="module")
def for_cuda() -> list[Written]:
    return written(TASKS.values(), "cuda", _answers("cuda", 2))


@pytest.fixture(scope="module")
def emulated(for_cuda: list[Written], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compile_emulated([one.program for one in for_cuda], tmp_path_factory.mktemp("emulated"))


@pytest.mark.builds
@pytest.mark.parametrize("name", TASKS)
def test_what_is_written_for_the_cpu_is_right(name: str, for_cpu: tuple[list[Written], Any]) -> None:
    found, module = for_cpu
    _check([one for one in found if one.task.name == name], module, executor.bind)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the emulator was written for x86-64")
@pytest.mark.parametrize("name", TASKS)
def test_what_is_written_for_cuda_is_right(name: str, for_cuda: list[Written], emulated: Any) -> None:
    _check([one for one in for_cuda if one.task.name == name], emulated, Emulated)


def _check(found: list[Written], module: Any, bind: Any, device: str = "cpu") -> None:
    assert found
    for one in found:
        for size in SIZES:
            errors = one.errors(module, bind, size, device)
            allowed = HALF_TYPES if one.task.graph.inputs[0].spec.dtype in ("bf16", "f16") else 1.0
            assert all(error <= allowed for error in errors), (size, errors, one.program.source)


@pytest.mark.builds
@pytest.mark.slow
def test_cuda_compiles_without_a_warning(for_cuda: list[Written], tmp_path: Path) -> None:
    compile_cuda(UNUSED_NAMES + unit_text([one.program for one in for_cuda]), tmp_path, ["sm_90"])


@pytest.fixture(scope="module")
def on_gpu(for_cuda: list[Written], tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.zeros(1, device="cuda")
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    text = UNUSED_NAMES + unit_text([one.program for one in for_cuda])
    cubin = compile_cuda(text, tmp_path_factory.mktemp("unit"), [arch])[arch]
    return executor.CudaModule(driver(torch.cuda.current_device()), cubin.read_bytes())


@pytest.mark.gpu
@pytest.mark.parametrize("name", TASKS)
def test_what_is_written_for_cuda_is_right_on_a_gpu(name: str, for_cuda: list[Written], on_gpu: Any) -> None:
    _check([one for one in for_cuda if one.task.name == name], on_gpu, executor.bind, "cuda")
