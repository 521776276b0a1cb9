"""Runs emitted CUDA kernels on the CPU: compiled as C++, every thread a coroutine, with the checks of the sanitizers.

For the index arithmetic of kernels whose threads exchange values through shared memory at most: no warp shuffles, no
clusters, no PTX. Reads outside a buffer, unaligned vectors and subscripts outside an array end the program.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import torch

from kernel_assistant.environment.header import plan_header
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.schedule import Schedule
from kernel_assistant.records import Candidate, OpGraph
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.worker.runner import plan as plans
from tests.generator.harness import TORCH

HOST = Path(__file__).parent / "host" / "cuda_on_host.h"
FLAGS = ["-x", "c++", "-std=c++17", "-O1", "-g0", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
MAXIMUM = """KA_FN float ka_max(float a, float b) { return (a > b) | (a != a) ? a : b; }
KA_FN float ka_min(float a, float b) { return (a < b) | (a != a) ? a : b; }
KA_FN double ka_max(double a, double b) { return (a > b) | (a != a) ? a : b; }
KA_FN double ka_min(double a, double b) { return (a < b) | (a != a) ? a : b; }
KA_FN int32_t ka_as_int(float x) { int32_t y; memcpy(&y, &x, 4); return y; }
#define __CUDA_BF16_TYPES_EXIST__
#define __CUDA_FP16_TYPES_EXIST__
"""
#: Parts of ka_cuda.cuh that a host compiler understands: from one line to another.
PARTS = [
    ("#define KA_FN", "KA_FN int32_t ka_as_int"),
    ("#define KA_LIBRARY", "// A nan on either side"),
    ('#include "ka_math.h"', "// Elements e … e+V-1 of a row of n to `to` in shared memory"),
]


def host_header(text: str) -> str:
    """What kernels of windows need of ka_cuda.cuh, word for word, with other functions in place of PTX."""
    cut = []
    for begin, end in PARTS:
        start = text.index(begin)
        cut.append(text[start : text.index(end, start)])
    return "\n".join([f'#pragma once\n#include "{HOST.name}"\n', MAXIMUM.replace("KA_FN", "static inline"), *cut])


class OnHost:
    """A candidate for CUDA, called with tensors like `harness.Built`."""

    def __init__(self, graph: OpGraph, schedule: Schedule, folder: Path) -> None:
        self.graph, self.folder = graph, folder
        self.candidate = emit(graph, schedule)
        self.plan = to_builtins(self.candidate.plan)
        for name, text in self._files(self.candidate).items():
            (folder / name).write_text(text)
        argv = ["g++", *FLAGS, "-I", str(folder), str(folder / "main.cpp"), "-o", str(folder / "run")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def _files(self, candidate: Candidate) -> dict[str, str]:
        header = host_header(candidate.sources["ka_cuda.cuh"])
        return {
            "kernel.cu": candidate.sources["kernel.cu"],
            "ka_math.h": candidate.sources["ka_math.h"],
            "ka_cuda.cuh": header,
            "plan.h": f'#include "ka_cuda.cuh"\n{plan_header(candidate.plan)}',
            "cuda_bf16.h": "",
            "cuda_fp16.h": "",
            HOST.name: HOST.read_text(),
            "main.cpp": self._main(candidate),
        }

    def _main(self, candidate: Candidate) -> str:
        """Buffers and sizes come in a file, in the order of the plan; outputs go back into it."""
        plan = candidate.plan
        buffers = [spec.name for spec in (*plan.inputs, *plan.outputs)]
        lines = ["#include <stdio.h>", '#include "kernel.cu"', "int main(int, char** argv) {"]
        lines += [
            '  FILE* file = fopen(argv[1], "r+b");',
            f"  int64_t sizes[{len(buffers)}], grid[{len(plan.launches)}];",
        ]
        lines.append(
            "  if (fread(sizes, 8, sizeof sizes / 8, file) + fread(grid, 8, sizeof grid / 8, file) == 0) abort();"
        )
        for name in plan.dims:
            lines.append(f"  int64_t dim_{name}; if (fread(&dim_{name}, 8, 1, file) != 1) abort();")
        for number, name in enumerate(buffers):
            lines.append(f"  char* const buffer_{name} = on_host::read_all(file, sizes[{number}]);")
        for number, launch in enumerate(plan.launches):
            lines.append(f"  {{ {launch.symbol}_args a;")
            for field, value in launch.args:
                what = f"buffer_{value}" if value in buffers else f"dim_{value}"
                lines.append(f"    a.{field} = (decltype(a.{field})){what};")
            lines.append(f"    on_host::run(grid[{number}], {launch.block[0]}, [&] {{ {launch.symbol}(a); }}); }}")
        lines += ["  fseek(file, 0, SEEK_SET);"]
        for number, name in enumerate(buffers):
            if number >= len(plan.inputs):
                lines.append(f"  fwrite(buffer_{name}, 1, sizes[{number}], file);")
        return "\n".join([*lines, "  fclose(file);", "  return 0;", "}"]) + "\n"

    def __call__(self, values: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        plan, specs = self.candidate.plan, [to_builtins(spec) for spec in self.candidate.plan.outputs]
        pairs = [
            pair for value in self.graph.inputs for pair in zip(value.spec.shape, values[value.name].shape, strict=True)
        ]
        dims = {text: size for text, size in pairs if text in self.graph.dims}
        given = [_strided(to_builtins(spec), dims).copy_(values[spec.name]) for spec in plan.inputs]
        outputs = [_strided(spec, dims) for spec in specs]
        buffers = [*given, *outputs]
        numbers = [value.numel() * value.element_size() for value in buffers]
        numbers += [plans.evaluate(launch.grid[0], dims) for launch in plan.launches] + [
            dims[name] for name in plan.dims
        ]
        path = self.folder / "buffers"
        path.write_bytes(b"".join(n.to_bytes(8, "little") for n in numbers) + b"".join(map(_bytes, buffers)))
        argv = [str(self.folder / "run"), str(path)]
        done = subprocess.run(argv, env={"ASAN_OPTIONS": "detect_leaks=0"}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found, at = path.read_bytes(), 0
        for output in outputs:
            size = output.numel() * output.element_size()
            ctypes.memmove(output.data_ptr(), found[at : at + size], size)
            at += size
        return outputs


def _strided(spec: dict[str, Any], dims: dict[str, int]) -> torch.Tensor:
    shape, strides = plans.shape(spec, dims), plans.strides(spec, dims)
    return torch.empty_strided(shape, strides, dtype=TORCH[spec["dtype"]])


def _bytes(value: torch.Tensor) -> bytes:
    return ctypes.string_at(value.data_ptr(), value.numel() * value.element_size())
