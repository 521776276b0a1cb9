"""A project with one class whose kernels were verified by a real host and applied by the real command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.records import BufferSpec, Launch, Plan, encode
from kernel_assistant.session.client import Client
from tests.common.caches import new_cache
from tests.common.commands import run_here
from tests.common.packages import lay_out

MODEL = '''"""Layers of a small model."""

from __future__ import annotations

import torch
from torch import nn


class Gate(nn.Module):
    """x * sigmoid(x) * weight * scale."""

    def __init__(self, width: int = 64, scale: float = 1.5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.scale = scale

    def forward(self, x):
        return x * torch.sigmoid(x) * self.weight * self.scale


def get_inputs():
    return [torch.randn(8192, 64)]
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


def write_workspace(folder: Path, target: str, name: str, source: str, **launch: tuple[str, ...]) -> None:
    """Writes the plan of a kernel of the class, and its source, below `folder`."""
    x, out = (BufferSpec(name=name, dtype="f32", shape=("B", "64")) for name in ("x0", "out0"))
    weight = BufferSpec(name="p0", dtype="f32", shape=("64",))
    args = (("x", "x0"), ("w", "p0"), ("out", "out0"), ("rows", "B"), ("width", "64"))
    launches = (Launch(symbol="gate", args=args, **launch),)
    plan = Plan(target=target, dims=("B",), inputs=(x, weight), outputs=(out,), launches=launches, schedule="by hand")
    (folder / "workspace").mkdir()
    (folder / "workspace" / "plan.json").write_bytes(encode(plan))
    (folder / "workspace" / name).write_text(source)


Run = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Project:
    """A copy of the applied project for one test; `run` is the command line in its folder."""

    folder: Path
    run: Run

    @property
    def model(self) -> Path:
        return self.folder / "model.py"

    @property
    def kernels(self) -> Path:
        return self.folder / "model_kernels" / "Gate"

    @property
    def source(self) -> Path:
        return self.kernels / "sources" / "gate.cpp"

    def check(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("check", "--python", sys.executable, *arguments, cwd=self.folder)


@pytest.fixture(scope="session")
def command(python_path: str) -> Iterator[Run]:
    """Runs the command line. All tests of this folder share its home, its host and a warm worker."""
    home = Path(tempfile.mkdtemp(prefix="ka-check-"))
    new_cache(home / "cache")
    own = {"KERNEL_ASSISTANT_HOME": str(home), "KERNEL_ASSISTANT_TARGET": "auto", "PYTHONPATH": python_path}
    strangers = [name for name in os.environ if name.startswith("KERNEL_ASSISTANT_")]

    def run(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        with pytest.MonkeyPatch.context() as patch:
            for name in strangers:
                patch.delenv(name, raising=False)
            return run_here(*arguments, cwd=cwd, **{**own, **environment})

    yield run
    Client(resolve(None, {}, own)[0]).shutdown()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def verified(command: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model.py` and the last job of the host, which verified hand-written kernels for its class."""
    folder = tmp_path_factory.mktemp("verified")
    (folder / "model.py").write_text(MODEL)
    write_workspace(folder, "cpu", "gate.cpp", SOURCE)
    own = ("--python", sys.executable, "--target", "cpu")
    done = command("verify", "workspace", "--reference", "model.py", *own, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def template(command: Run, verified: Path) -> Path:
    done = command("apply", "1", "--force", cwd=verified)
    assert done.returncode == 0, done.stderr
    assert "commit model_kernels/ together with the file" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("runs when: eval mode, no gradient, ")
    return verified


@pytest.fixture
def project(command: Run, template: Path, tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    shutil.copytree(template, folder, ignore=shutil.ignore_patterns("workspace", "__pycache__"))
    # As earlier versions wrote it: what they left is checked, mended and undone like what is written today.
    lay_out(folder / "model_kernels")
    return Project(folder, command)
