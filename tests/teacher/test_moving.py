"""Windows, scans, layout, gathers and reductions over columns: answers are compared with PyTorch in float64, also at
other sizes; answers for CUDA run on the emulator of a block.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from kernel_assistant.environment.builds.headers import INCLUDE
from kernel_assistant.targets import cpu
from kernel_assistant.worker.applied.binaries import driver
from kernel_assistant.worker.runner import executor
from kernel_assistant_training.teacher.families import layout, scans, strided, windows
from kernel_assistant_training.teacher.text.answer import Answer, Family
from tests.common.builds import build
from tests.skills.emulated import Emulated, compile_emulated
from tests.skills.harness import compile_cuda, unit_text
from tests.teacher import moving_tasks
from tests.teacher.units import Task, Written, cpu_unit, task, written

SIZES = (1, 3)
#: Family → its tasks.
FAMILIES: dict[str, tuple[Family, Callable[[], list[Task]]]] = {
    "layout": (layout.answers, moving_tasks.layout),
    "gathers": (layout.answers, moving_tasks.gathers),
    "windows": (windows.answers, moving_tasks.windows),
    "scans": (scans.answers, moving_tasks.scans),
    "strided": (strided.answers, moving_tasks.strided),
}
HEADERS = [f"ka/{name}.h" for name in ("rows", "columns", "scan", "index", "transpose", "window")]
#: Every source has all names of its task's numbers in front.
UNUSED_NAMES = "#pragma nv_diag_suppress 177\n"


def _written(target: str) -> list[Written]:
    """The best guess of each form for each task."""
    found: list[Written] = []
    for family, tasks in FAMILIES.values():

        def answers(task: Task, family: Family = family) -> Sequence[Answer]:
            every = family(task.canonical, target, Random(0))
            assert every, task.canonical.text()
            return list({one.families: one for one in reversed(every)}.values())

        found += written(tasks(), target, answers, len(found))
    return found


@pytest.fixture(scope="module")
def for_cpu(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Written], Any]:
    folder: Path = tmp_path_factory.mktemp("cpu")
    found = _written("cpu")
    (folder / "unit.cpp").write_text(cpu_unit(found, HEADERS))
    argv = [cpu.compiler(), *cpu.FLAGS, "-O1", *cpu.LINK_FLAGS, f"-I{INCLUDE}", "unit.cpp", "-o", "unit.so"]
    build(argv, folder, "unit.so")
    executor.provide_openmp()
    return found, executor.CpuModule(str(folder / "unit.so"))


@pytest.fixture(scope="module")
def for_cuda() -> list[Written]:
    return _written("cuda")


@pytest.mark.builds
@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_for_the_cpu_is_right(size: int, for_cpu: tuple[list[Written], Any]) -> None:
    found, module = for_cpu
    _check(found, module, executor.bind, size)


@pytest.mark.builds
@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the emulator was written for x86-64")
def test_what_is_written_for_cuda_is_right(for_cuda: list[Written], tmp_path: Path) -> None:
    emulated = compile_emulated([one.program for one in for_cuda], tmp_path)
    for size in SIZES:
        _check(for_cuda, emulated, Emulated, size)


@pytest.mark.builds
@pytest.mark.slow
def test_cuda_compiles_without_a_warning(for_cuda: list[Written], tmp_path: Path) -> None:
    compile_cuda(UNUSED_NAMES + unit_text([one.program for one in for_cuda]), tmp_path, ["sm_90"])


@pytest.mark.gpu
@pytest.mark.parametrize("size", [*SIZES, 64])
def test_what_is_written_for_cuda_is_right_on_a_gpu(size: int, for_cuda: list[Written], tmp_path: Path) -> None:
    torch.zeros(1, device="cuda")
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    text = UNUSED_NAMES + unit_text([one.program for one in for_cuda])
    cubin = compile_cuda(text, tmp_path, [arch])[arch]
    _check(for_cuda, executor.CudaModule(driver(torch.cuda.current_device()), cubin.read_bytes()), executor.bind, size)


def _check(found: list[Written], module: Any, bind: Any, size: int) -> None:
    device = "cpu" if bind is not executor.bind or isinstance(module, executor.CpuModule) else "cuda"
    errors = {f"{one.task.name} {at}": one.errors(module, bind, size, device) for at, one in enumerate(found)}
    assert {name: error for name, error in errors.items() if not all(part <= 1 for part in error)} == {}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_what_no_form_fits_has_no_answer(target: str) -> None:
    """Elementwise and row tasks belong to other families; no form exists for uneven windows and for the indices of a
    pool.
    """
    others = [
        task("plain", lambda x: torch.relu(x) + 1, lambda size: (torch.randn(size, 8),)),
        task("rows", lambda x: x.softmax(-1), lambda size: (torch.randn(size, 8),)),
        task("uneven", torch.nn.AdaptiveAvgPool2d(3), lambda size: (torch.randn(size, 2, 8, 8),)),
        task(
            "indices",
            torch.nn.MaxPool2d(2, return_indices=True),
            lambda size: (torch.randn(size, 2, 8, 8),),
        ),
    ]
    for one in others:
        for family, _ in FAMILIES.values():
            assert family(one.canonical, target, Random(0)) == [], one.name
