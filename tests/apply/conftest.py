"""A real candidate that was written by hand, and users' files to apply it to. Everything runs in separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_assistant.records import (
    BufferSpec,
    Evaluation,
    Launch,
    Node,
    OpGraph,
    Outcome,
    Plan,
    Stage,
    TensorSpec,
    Tier,
    Timing,
    encode,
)
from kernel_assistant.records.graph import GraphInput
from kernel_assistant.targets.base import DeviceFacts
from tests.common import forked
from tests.common.results import accuracy_of
from tests.common.tasks import task_of

ROOT = Path(__file__).resolve().parents[2]

USER_FILE = '''"""Layers of a small model."""
from __future__ import annotations

import torch
from torch import nn


class Gate(nn.Module):
    """x * sigmoid(x) * weight * scale."""

    def __init__(self, width: int = 64, scale: float = 1.5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.scale = scale
        self.out = nn.Identity()

    def forward(self, x):
        return self.out(x * torch.sigmoid(x) * self.weight * self.scale)


if __name__ == "__main__":
    module, x = Gate().eval(), torch.randn(3, 64)
    with torch.no_grad():
        print("sum", float((module(x) - Gate.forward.__wrapped__(module, x)).abs().max()) if hasattr(
            Gate.forward, "__wrapped__") else "plain")
'''

SOURCE = """#include "plan.h"
#include <cmath>

extern "C" void gate(const gate_args* a) {
    #pragma omp parallel for
    for (int64_t row = 0; row < a->rows; ++row) {
        const float* x = a->x + row * a->width;
        float* y = a->out + row * a->width;
        for (int64_t i = 0; i < a->width; ++i) y[i] = x[i] / (1.0f + std::exp(-x[i])) * a->w[i] * 1.5f;
    }
}
"""

HEADER = """#pragma once
#include <cstdint>
typedef struct { const float* x; const float* w; float* out; int64_t rows; int64_t width; } gate_args;
"""

PLAN = Plan(
    target="cpu",
    dims=("B",),
    inputs=(BufferSpec(name="x0", dtype="f32", shape=("B", "64")), BufferSpec(name="w", dtype="f32", shape=("64",))),
    outputs=(BufferSpec(name="out0", dtype="f32", shape=("B", "64")),),
    launches=(Launch(symbol="gate", args=(("x", "x0"), ("w", "w"), ("out", "out0"), ("rows", "B"), ("width", "64"))),),
    schedule="rows",
)

_ROWS = TensorSpec(dtype="f32", shape=("B", "64"))
GRAPH = OpGraph(
    dims={"B": 8},
    inputs=(
        GraphInput(name="x0", spec=_ROWS),
        GraphInput(name="w", spec=TensorSpec(dtype="f32", shape=("64",)), kind="param", path="weight"),
    ),
    nodes=(
        Node(name="sigmoid", op="sigmoid.default", args=("%x0",), spec=_ROWS),
        Node(name="mul", op="mul.Tensor", args=("%x0", "%sigmoid"), spec=_ROWS),
        Node(name="mul_1", op="mul.Tensor", args=("%mul", "%w"), spec=_ROWS),
        Node(name="mul_2", op="mul.Tensor", args=("%mul_1", 1.5), spec=_ROWS),
    ),
    outputs=("mul_2",),
)

EVALUATION = Evaluation(
    candidate="0" * 16,
    tier=Tier.full,
    outcome=Outcome.correct,
    stage=Stage.profile,
    message="correct",
    accuracy=accuracy_of(inputs_tried=8, shapes_tried=3),
    timing=Timing(
        candidate_ms=0.1, eager_ms=0.3, compile_ms=0.2, speedup_vs_eager=3.0, speedup_vs_compile=2.0,
        speedup_vs_compile_ci=(1.9, 2.1),
    ),
)  # fmt: skip

FACTS = """
import json, runpy, sys
import torch
from kernel_assistant.worker.applied.attributes import module_attributes
from kernel_assistant.worker.applied.calls import describe_arguments, describe_result
names = runpy.run_path(sys.argv[1], run_name="facts")
module = names[sys.argv[2]]().eval()
x = torch.randn(8, 64)
rows = {"dtype": "f32", "shape": ["B", "64"], "strides": None}
print(json.dumps({
    "attributes": module_attributes(module),
    "inputs": [rows],
    "ranges": {"B": [1, 5000]},
    "call": describe_arguments((x,), {}, ["x0"]),
    "result": describe_result(module(x)),
    "versions": {"torch": torch.__version__},
}))
"""

MakeResult = Callable[..., Path]
Python = Callable[..., str]

#: Begins a program for which it is an error if kernels are not loaded.
STRICT = """
import runpy, sys, warnings
warnings.simplefilter("error", RuntimeWarning)
sys.path[:0] = ["", "site-packages"]
import torch
"""

#: Programs with other variables in their environment than these are started anew: torch may read them at its import.
AFTER_TORCH = ("KERNEL_ASSISTANT_", "PYTHONPATH", "CODE", "XDG_", "HOME", "PATH")


def run_python(code: str, folder: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    """Standard output of an interpreter that cannot import this checkout and has nothing but torch imported. If the
    program fails, the test fails with its output.
    """
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    variables = {**clean, **(env or {})}
    if all(name.startswith(AFTER_TORCH) for name in env or {}):
        code_of_exit, out, err = forked.run(code, folder, arguments, variables)
    else:
        # At its end it does not scan torch's objects for garbage, which takes half a second.
        command = [sys.executable, "-c", f"import atexit, gc; atexit.register(gc.freeze)\n{code}", *arguments]
        done = subprocess.run(
            command, cwd=folder, env=variables, capture_output=True, text=True, timeout=240, check=False
        )
        code_of_exit, out, err = done.returncode, done.stdout, done.stderr
    assert code_of_exit == 0, out + err
    return out


@pytest.fixture(scope="session")
def python() -> Callable[..., str]:
    return run_python


@pytest.fixture(scope="session")
def shared_object(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("build")
    (folder / "plan.h").write_text(HEADER)
    (folder / "gate.cpp").write_text(SOURCE)
    flags = ["-O3", "-march=x86-64-v3", "-fPIC", "-shared", "-fopenmp", "-nostdlib", "-nodefaultlibs"]
    subprocess.run(["g++", *flags, "gate.cpp", "-o", "gate.so", "-lm", "-lc"], cwd=folder, check=True)
    return (folder / "gate.so").read_bytes()


@pytest.fixture(scope="session")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("facts")
    (folder / "model.py").write_text(USER_FILE)
    out = run_python(FACTS, folder, str(folder / "model.py"), "Gate", env={"PYTHONPATH": str(ROOT)})
    described: dict[str, Any] = json.loads(out)
    return described


@pytest.fixture
def make_result(tmp_path: Path, shared_object: bytes, facts: dict[str, Any]) -> MakeResult:
    """A result folder for a class of a file: `make_result(text, class_name="Gate", arch="x86-64-avx2")`."""

    def make(text: str, class_name: str = "Gate", arch: str = "x86-64-avx2", source: str = SOURCE) -> Path:
        folder = tmp_path / f"result-{class_name}-{len(list(tmp_path.iterdir()))}"
        (folder / "sources").mkdir(parents=True)
        (folder / "binaries").mkdir()
        task = task_of("model.py", text, class_name)
        device = DeviceFacts(target="cpu", name="test", arch=arch)
        records = {"task": task, "graph": GRAPH, "plan": PLAN, "evaluation": EVALUATION, "device": device}
        for name, record in records.items():
            (folder / f"{name}.json").write_bytes(encode(record))
        attributes = {path: dict(values) for path, values in facts["attributes"].items()}
        attributes[""]["(class)"] = class_name
        (folder / "facts.json").write_text(json.dumps({**facts, "attributes": attributes}))
        (folder / "sources" / "gate.cpp").write_text(source)
        (folder / "sources" / "plan.h").write_text(HEADER)
        (folder / "binaries" / f"kernels.{arch}.so").write_bytes(shared_object)
        return folder

    return make


@pytest.fixture
def user_file() -> str:
    return USER_FILE


@pytest.fixture
def model(tmp_path: Path, user_file: str) -> Path:
    """The user's file in a project."""
    path = tmp_path / "project" / "model.py"
    path.parent.mkdir()
    path.write_text(user_file)
    return path


@pytest.fixture
def result(make_result: MakeResult, user_file: str) -> Path:
    """A result for the class of the user's file."""
    return make_result(user_file)


def snapshot(folder: Path) -> dict[str, bytes]:
    """The files of a folder and what they hold, without Python's caches."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def change(file: Path, **fields: object) -> None:
    """Replaces fields of the JSON object in a file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def with_width(result: Path, width: int) -> Path:
    """Makes a result one for instances of this width."""
    for name in ("graph.json", "plan.json", "facts.json"):
        (result / name).write_text((result / name).read_text().replace('"64"', f'"{width}"'))
    return result


def with_module(result: Path, module_name: str) -> Path:
    """Makes a result one for a class of an installed module."""
    change(result / "task.json", module_name=module_name)
    return result
