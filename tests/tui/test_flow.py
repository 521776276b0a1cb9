"""A user's session from the list of classes to the applied kernel and back, with real jobs on the CPU."""

from __future__ import annotations

import subprocess
import sys
import threading

import psutil
import pytest

from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client
from tests.agent.models import FINISH
from tests.policy.endpoint import calling, served
from tests.tui.conftest import BARE, MODEL
from tests.tui.driving import opened, press, ready, shown, until, until_gone

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.usefixtures("own_templates")]

WIDE = (150, 45)
RUN = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from model import Gate
x = torch.randn(256, 1024)
expected = torch.sigmoid(x) * torch.tanh(x) + torch.relu(x) * 0.5
with torch.no_grad():
    assert torch.allclose(Gate().eval()(x), expected, atol=1e-5)
import model_kernels
print(model_kernels.counters())
"""


@pytest.fixture(scope="module")
def project(shared_home):
    folder = shared_home / "project"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    return folder


def run(project):
    """The counters of the applied kernel in a program of the user."""
    done = subprocess.run([sys.executable, "-c", RUN, str(project)], capture_output=True, text=True, check=True)
    return done.stdout


async def test_from_the_class_to_its_kernels_and_back(project, tmp_path):
    path = project / "model.py"
    async with ready(project, "s", sees=("started on cpu:0", "module exported: 6 operators"), size=WIDE) as pilot:
        await until(pilot, "turn 1", "correct")
        ended = await until(pilot, "ended:")
        assert "torch.compile" in ended

        await press(pilot, "3", "l", sees="#pragma omp")
        await press(pilot, "d", sees="+ ")
        await press(pilot, "a", sees=("Apply job 1", "+"))
        await pilot.press("escape")
        await until_gone(pilot, "Apply job 1")
        assert path.read_text() == MODEL
        await press(pilot, "a", sees=("Apply job 1", "+"))
        await press(pilot, "a", sees="is served by model_kernels/")
        assert path.read_text() != MODEL
        assert "Gate" in run(project)

        await press(pilot, "1", "v", sees="verified")
        await press(pilot, "u", sees="Take the kernels of Gate out")
        await press(pilot, "u", sees="byte for byte as before")
        assert path.read_text() == MODEL and not (project / "model_kernels").exists()


async def test_history_has_it_after_a_restart(project):
    Client(resolve()[0]).shutdown()
    async with ready(project, size=WIDE) as pilot:
        assert "ended:" not in shown(pilot.app)
        await press(pilot, "h", sees="2 of 2")
        await press(pilot, *"check", sees=("1 of 2", "check Gate"))
        await press(pilot, *["backspace"] * 5, *"gate", "enter", "down", "enter", sees=("1 Gate", "ended:", "turn 1"))
        await press(pilot, "3", "l", sees="#pragma omp")
    assert Client(resolve()[0]).status() is None


async def test_a_model_is_watched_and_steered(project):
    asked, go_on, heard = (threading.Event() for _ in range(3))

    def looks_about(request):
        asked.set()
        go_on.wait(60)
        calling(("list", {"folder": "."}))(request)

    def hears(request):
        if request.body["messages"][-1] == {"role": "user", "content": "no shared memory"}:
            heard.set()
        calling(FINISH)(request)

    with served() as endpoint:
        endpoint.answers += [looks_about, hears]
        flags = {"policy": "model", "endpoint": endpoint.url, "budget": 600.0, "turns": 9}
        async with ready(project, "s", sees=asked.is_set, size=WIDE, **flags) as pilot:
            await press(pilot, "m", *"no shared memory", "enter", sees="the model reads it at its next turn")
            go_on.set()
            await until(pilot, heard.is_set)
            told = await until(pilot, "ended:")
    assert "to the model: no shared memory" in told and "> finish" in told


@pytest.mark.lost
async def test_a_worker_that_is_killed_is_told_of_and_the_job_goes_on(project):
    async with ready(project, "s", sees="module exported", size=WIDE, budget=600.0, turns=200) as pilot:
        host = Client(resolve()[0]).status()["pid"]
        workers = [one for one in psutil.Process(host).children(recursive=True) if "boot.py" in " ".join(one.cmdline())]
        workers[0].kill()
        await until(pilot, "warning: the worker died")
        await until(pilot, "turn 1", "correct")
        await press(pilot, "x", sees="ended:")


@pytest.mark.timed
async def test_a_class_without_inputs_gets_a_draft_and_runs(project):
    path = project / "bare.py"
    path.write_text(BARE)
    async with opened(project, WIDE, budget=1.0) as pilot:
        await until(pilot, "Bare")
        await press(pilot, "slash", *"bare", "enter", "s", sees=("Mend this draft", "kernel-assistant: inputs="))
        await pilot.press("escape")
        await until_gone(pilot, "Mend this draft")
        assert path.read_text() == BARE
        await press(pilot, "s", sees="Mend this draft")
        await press(pilot, "f2", sees="module exported")
        drafted = path.read_text().splitlines()
        assert "\n".join(line for line in drafted if not line.startswith("# ")) == BARE.rstrip("\n")
        assert "# kernel-assistant: inputs=(" in path.read_text()
        await press(pilot, "x", sees="ended:")


@pytest.mark.timed
async def test_exported_to_a_folder(project):
    async with ready(project, "h", sees="History", size=WIDE) as pilot:
        await press(pilot, *"gate", "enter", "end", "enter", sees=("1 Gate", "ended:"))
        await press(pilot, "w", sees=("Export the kernels of job 1", "gate_kernels"))
        await press(pilot, "w", sees="Gate is in")
    exported = list((project / "gate_kernels").rglob("*.py"))
    assert any("ModelNew" in one.read_text() for one in exported)
