"""A module of a project is optimized on the remote machine with everything real, and its kernels are written into the
local file.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_assistant.records import JobOutcome, OptimizeResult
from kernel_assistant.records.codec import from_builtins

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NET = """
from pathlib import Path

import torch

from ..settings import SCALE
from . import steps

SHIFT = float((Path(__file__).parent / "data" / "shift.txt").read_text())

class Chain(torch.nn.Module):
    def forward(self, x):
        for _ in range(steps.COUNT):
            x = torch.relu(x * SCALE - 0.5) + SHIFT
        return x

def get_inputs():
    return [torch.randn(32, 512)]
"""

USE = """
import torch
from deep.inside.net import Chain
module, x = Chain().eval(), torch.randn(32, 512)
want = x
for _ in range(12):
    want = torch.relu(want * 1.25 - 0.5) + 0.125
with torch.no_grad():
    print(torch.allclose(module(x), want, atol=1e-3))
"""


@pytest.fixture
def project(here):
    files = {
        "pyproject.toml": '[tool.kernel-assistant]\nship = ["deep/inside/data"]\n',
        "deep/__init__.py": "",
        "deep/settings.py": "SCALE = 1.25\n",
        "deep/unused.py": "",
        "deep/inside/__init__.py": "",
        "deep/inside/steps.py": "COUNT = 12\n",
        "deep/inside/net.py": NET,
        "deep/inside/data/shift.txt": "0.125",
        "deep/inside/data/.env": "PASSWORD=1\n",
    }
    for name, text in files.items():
        path = here / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return here / "project"


def test_from_a_project_to_applied_kernels(sshd, run, project, monkeypatch):
    monkeypatch.setenv("KERNEL_ASSISTANT_TURNS", "2")
    module = project / "deep/inside/net.py"
    there = ("--host", "box", "--remote-python", sys.executable)
    done = run("optimize", module, *there, "--budget", "60s", "--no-free-wins", "--json")
    assert done.returncode == 0, done.stderr
    assert ".env is not shipped" in done.stderr
    document = json.loads(done.stdout)
    host = document.pop("host")
    assert host["name"] == "box" and host["files"] == 6 and host["tool_bytes"] > 1_000_000
    result = from_builtins(document, OptimizeResult)
    assert result.outcome in (JobOutcome.improved, JobOutcome.no_measurable_gain, JobOutcome.inconclusive)
    assert result.best is not None
    assert all(Path(path).is_file() for name, path in result.artifacts.items() if name != "job")
    assert Path(result.artifacts["plan.json"]).is_relative_to(project.parent / "home")
    shipped = {path.name for path in (Path(host["folder"]) / "projects").rglob("*.*") if path.suffix != ".pyc"}
    assert shipped == {"__init__.py", "settings.py", "steps.py", "net.py", "shift.txt"}

    # The same again: nothing has to travel.
    again = json.loads(run("optimize", module, *there, "--budget", "1s", "--no-free-wins", "--json").stdout)["host"]
    assert (again["tool_bytes"], again["files"], again["bytes"]) == (0, 0, 0)

    job = result.artifacts["job"]
    assert "on " in run("show", job).stdout
    assert str(module) in run("show", host["job"], *there).stdout
    done = run("apply", job, "--force")
    assert done.returncode == 0, done.stderr
    used = subprocess.run([sys.executable, "-c", USE], cwd=project, capture_output=True, text=True, check=False)
    assert used.stdout.strip() == "True", used.stderr
    assert run("undo", job).returncode == 0
    assert module.read_text() == NET
    assert run("host", "stop", *there).stdout.strip() == "stopped"
