"""All programs as one translation unit, and a program with bound sizes, which the product's own executor runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from kernel_assistant.environment.builds.header import plan_header
from kernel_assistant.environment.builds.headers import INCLUDE
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.targets import cuda
from kernel_assistant.worker.runner import executor
from kernel_assistant.worker.runner import plan as plans
from tests.common.builds import build
from tests.skills.program import Dims, Program

TORCH = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}


def unit_text(programs: Iterable[Program]) -> str:
    """The kernels of all programs, with their argument structs."""
    every = list(programs)
    lines = ["#include <cuda_bf16.h>", "#include <cuda_fp16.h>"]
    lines += [f'#include "ka/{header}.cuh"' for header in sorted({one.header for one in every})]
    for one in every:
        structs = [line for line in plan_header(one.plan).splitlines() if line.startswith("typedef")]
        lines += [*structs, one.source]
    return "\n".join(lines)


def compile_cuda(text: str, folder: Path, archs: Iterable[str]) -> dict[str, Path]:
    """A map from architecture to cubin, compiled with the flags of candidates and without a warning."""
    (folder / "unit.cu").write_text(text, encoding="utf-8")
    found = {}
    for arch in archs:
        target = folder / f"unit.{arch}.cubin"
        argv = [cuda.compiler(), *cuda.FLAGS, f"-arch={arch}", "-Werror=all-warnings", f"-I{INCLUDE}"]
        build([*argv, "unit.cu", "-o", target.name], folder, target.name)
        found[arch] = target
    return found


class Bound:
    """A program at some sizes: new inputs on `device`, outputs and scratch filled with NaN. `run()` launches it."""

    def __init__(
        self, program: Program, dims: Dims, module: Any, device: str, seed: int = 0, bind: Any = executor.bind
    ) -> None:
        self.program, self.dims = program, dims
        plan = to_builtins(program.plan)
        bound = bind(plan, dims, module)
        random = torch.Generator(device).manual_seed(seed)
        self.tensors = {}
        for spec in plan["inputs"]:
            made = torch.randn(plans.shape(spec, dims), generator=random, device=device) + program.shift
            self.tensors[spec["name"]] = made.to(TORCH[spec["dtype"]])
        for spec in (*plan["outputs"], *plan["scratch"]):
            shape = plans.shape(spec, dims)
            self.tensors[spec["name"]] = torch.full(shape, float("nan"), dtype=TORCH[spec["dtype"]], device=device)
        self.run: Callable[[int], None] = bound.freeze([self.tensors[name].data_ptr() for name in bound.names])

    @property
    def output(self) -> torch.Tensor:
        return self.tensors["out0"]

    @property
    def bytes(self) -> int:
        """The bytes that must move: inputs and outputs, each once."""
        names = [spec.name for spec in (*self.program.plan.inputs, *self.program.plan.outputs)]
        return sum(self.tensors[name].numel() * self.tensors[name].element_size() for name in names)

    def error(self) -> float:
        """The largest error against float64, divided by the largest value; NaN if an element was not written."""
        inputs = [self.tensors[spec.name].double() for spec in self.program.plan.inputs]
        want = self.program.exact(*inputs)
        return float((self.output.double() - want).abs().max() / want.abs().max())
