"""Runs emitted CUDA kernels on the CPU, each as a program compiled with the emulator and the sanitizers. A read outside
a buffer, an unaligned vector or an index outside an array ends the program.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.environment.builds.header import plan_header
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.schedule import Schedule, read_schedule
from kernel_assistant.records import Candidate, OpGraph
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.targets import cpu
from kernel_assistant.worker.applied.strided import laid_out, span
from kernel_assistant.worker.runner import plan as plans
from tests.common.builds import build
from tests.generator.checks import check
from tests.generator.harness import TORCH, Tensors, export, resized, sizes_in
from tests.skills.emulated import HERE, without_assembly

FLAGS = ["-std=c++17", "-O1", "-g0", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
#: Shared memory of a size that the launch gives.
DYNAMIC = "extern __shared__ uint4 ka_dynamic[];"


class OnHost:
    """A candidate for CUDA that is called with tensors, like `harness.Built`. Without g++ the test is skipped."""

    def __init__(self, graph: OpGraph, schedule: Schedule, folder: Path) -> None:
        if shutil.which("g++") is None:
            pytest.skip("needs g++")
        self.graph, self.folder = graph, folder
        self.candidate = emit(graph, schedule)
        for name, text in self._files(self.candidate).items():
            (folder / name).write_text(text)
        build([cpu.compiler(), *FLAGS, "-I.", f"-I{HERE}", "main.cpp", "-o", "run"], folder, "run")
        (folder / "run").chmod(0o755)

    def _files(self, candidate: Candidate) -> dict[str, str]:
        sources = candidate.sources
        kernel = re.sub(r"const __grid_constant__ (\w+) a\b", r"const \1& a", sources["kernel.cu"])
        kernel = kernel.replace(DYNAMIC, "uint4* const ka_dynamic = (uint4*)emulator::dynamic;")
        return {
            "kernel.cu": kernel,
            "ka_math.h": sources["ka_math.h"],
            "ka_cuda.cuh": without_assembly(sources["ka_cuda.cuh"]),
            "plan.h": plan_header(candidate.plan),
            "cuda_bf16.h": "",
            "cuda_fp16.h": "",
            "main.cpp": self._main(candidate),
        }

    def _main(self, candidate: Candidate) -> str:
        """The main function. Numbers and buffers come from a file, in the order of the plan; outputs are written back
        to it.
        """
        plan = candidate.plan
        buffers = [spec.name for spec in (*plan.inputs, *plan.outputs)]
        numbers = [
            *(f"bytes_{name}" for name in buffers),
            *(f"bytes_{spec.name}" for spec in plan.scratch),
            *(f"grid_{number}" for number in range(len(plan.launches))),
            *(f"dim_{name}" for name in plan.dims),
        ]
        lines = ['#include "emulator.h"', '#include "kernel.cu"', "int main(int, char** argv) {"]
        lines.append('  FILE* file = fopen(argv[1], "r+b");')
        lines += [f"  int64_t {name}; if (fread(&{name}, 8, 1, file) != 1) abort();" for name in numbers]
        for name in buffers:
            lines.append(f"  char* const at_{name} = (char*)malloc(bytes_{name});")
            lines.append(f"  if (fread(at_{name}, 1, bytes_{name}, file) != bytes_{name}) abort();")
        for spec in plan.scratch:
            lines.append(f"  char* const at_{spec.name} = (char*)malloc(bytes_{spec.name});")
        known = {*buffers, *(spec.name for spec in plan.scratch)}
        for number, launch in enumerate(plan.launches):
            lines.append(f"  {launch.symbol}_args a{number};")
            for field, value in launch.args:
                what = f"at_{value}" if value in known else f"dim_{value}"
                lines.append(f"  a{number}.{field} = (decltype(a{number}.{field})){what};")
            kernel = f"(void (*)(const void*)){launch.symbol}"
            lines.append(f"  emulate({kernel}, &a{number}, grid_{number}, 1, 1, {launch.block[0]}, {launch.shared});")
        lines.append("  fseek(file, 0, SEEK_SET);")
        lines += [f"  fwrite(at_{spec.name}, 1, bytes_{spec.name}, file);" for spec in plan.outputs]
        return "\n".join([*lines, "  return fclose(file);", "}"]) + "\n"

    def __call__(self, values: dict[str, torch.Tensor], given: dict[str, int] | None = None) -> list[torch.Tensor]:
        """The outputs. `given` are the free dimensions, those of `values` by default."""
        plan = self.candidate.plan
        dims = given or sizes_in(self.graph, values)
        given = [laid_out(values[spec.name], plans.strides(to_builtins(spec), dims)) for spec in plan.inputs]
        outputs = [_strided(to_builtins(spec), dims) for spec in plan.outputs]
        buffers = [*given, *outputs]
        numbers = [_size(value) for value in buffers]
        numbers += [_size(_strided(to_builtins(spec), dims)) for spec in plan.scratch]
        numbers += [plans.evaluate(launch.grid[0], dims) for launch in plan.launches]
        numbers += [dims[name] for name in plan.dims]
        path = self.folder / "buffers"
        path.write_bytes(b"".join(number.to_bytes(8, "little") for number in numbers) + b"".join(map(_bytes, buffers)))
        argv = [str(self.folder / "run"), str(path)]
        done = subprocess.run(argv, env={"ASAN_OPTIONS": "detect_leaks=0"}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found, at = path.read_bytes(), 0
        for output in outputs:
            ctypes.memmove(output.data_ptr(), found[at : at + _size(output)], _size(output))
            at += _size(output)
        return outputs


def check_on_host(model: torch.nn.Module, args: Tensors, line: str, folder: Path, rows: int = 1) -> None:
    """`check` of the schedule that a line writes, at the exported sizes and, where the first dimension alone is free,
    with that many rows.
    """
    built = OnHost(export(model, *args), read_schedule("cuda", line), folder)
    check(model, args, built)
    if list(built.graph.dims) == ["B"]:
        check(model, resized(args, rows), built)


def _strided(spec: dict[str, Any], dims: dict[str, int]) -> torch.Tensor:
    shape, strides = plans.shape(spec, dims), plans.strides(spec, dims)
    return torch.empty_strided(shape, strides, dtype=TORCH[spec["dtype"]])


def _size(value: torch.Tensor) -> int:
    return span(value) * value.element_size()


def _bytes(value: torch.Tensor) -> bytes:
    return ctypes.string_at(value.data_ptr(), _size(value))
