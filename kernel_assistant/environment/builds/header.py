"""Writes `plan.h`, which declares one struct for each kernel of a plan; the kernel's only argument is this struct.
Pure."""

from __future__ import annotations

from kernel_assistant.records import Launch, Plan

_CUDA_TYPES = {
    "f64": "double",
    "f32": "float",
    "bf16": "__nv_bfloat16",
    "f16": "__half",
    "i64": "int64_t",
    "i32": "int32_t",
    "i16": "int16_t",
    "i8": "int8_t",
    "u8": "uint8_t",
    "b1": "bool",
}
_CPU_TYPES = {**_CUDA_TYPES, "bf16": "ka_bf16", "f16": "_Float16"}


def plan_header(plan: Plan) -> str:
    """Returns the text of `plan.h`: one struct for each distinct kernel; every field has eight bytes."""
    types = _CUDA_TYPES if plan.target == "cuda" else _CPU_TYPES
    used = {spec.dtype for spec in plan.buffers}
    lines = ["// Generated from plan.json.", "#pragma once", "#include <stdint.h>"]
    if plan.target == "cuda":
        lines += ["#include <cuda_bf16.h>"] if "bf16" in used else []
        lines += ["#include <cuda_fp16.h>"] if "f16" in used else []
    elif "bf16" in used:
        lines.append('#include "ka_cpu.h"')
    written: set[str] = set()
    for launch in (*plan.prepare, *plan.launches):
        if launch.is_kernel and launch.symbol not in written:
            written.add(launch.symbol)
            lines.append(_struct(plan, launch, types))
    return "\n".join(lines) + "\n"


def _struct(plan: Plan, launch: Launch, types: dict[str, str]) -> str:
    constant = {spec.name for spec in (*plan.inputs, *(() if launch in plan.prepare else plan.packed))}
    dtypes = {spec.name: spec.dtype for spec in plan.buffers}
    fields = []
    for field, value in launch.args:
        if value in dtypes:
            fields.append(f"{'const ' if value in constant else ''}{types[dtypes[value]]}* {field};")
        else:
            fields.append(f"int64_t {field};")
    return f"typedef struct {{ {' '.join(fields)} }} {launch.symbol}_args;"
