"""Classes of installed libraries in the terminal: seen after a scan, applied to a program, undone."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tests.common.vendor import LAYERS, PROGRAM, installed
from tests.tui.driving import opened, press, shown, until, until_gone

pytestmark = [pytest.mark.programs, pytest.mark.asyncio, pytest.mark.slow, pytest.mark.usefixtures("own_templates")]

WIDE = (150, 45)


@pytest.fixture(scope="module")
def project(shared_home, python_path):
    folder = shared_home / "project"
    folder.mkdir()
    library, _ = installed(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{library.parents[1]}:{python_path}")  # a worker finds what is installed
        yield folder


async def test_from_a_scan_to_the_programs_kernels_and_back(project):
    library, program = project / "site-packages/vendor/layers.py", project / "main.py"
    async with opened(project, WIDE) as pilot:
        await until(pilot, "No nn.Module classes")
        await press(pilot, "p", sees="Run a program")
        await pilot.press("escape")
        await until_gone(pilot, "Run a program")
        await pilot.press("p")  # and not into the search
        await until(pilot, "Run a program")
        await pilot.press("ctrl+u", *"python main.py", "enter")
        listed = await until(pilot, "scan 1: 1 classes, Gate first", "vendor/layers.py:5")
        assert "Unused" not in listed

        await press(pilot, "1", "i", sees="Gate is of an installed")
        await press(pilot, "s", sees="ended:", seconds=400)
        await press(pilot, "a", sees=("Which program imports the kernels of Gate?", "main.py"))
        await press(pilot, "enter", sees=("Apply job 1", "import kernels_for_vendor"))
        assert program.read_text() == PROGRAM
        await press(pilot, "a", sees="is served by kernels_for_vendor/")
        run = [sys.executable, program]
        ran = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True, check=True)
        assert "'Gate': {'kernel': 3" in ran.stdout, ran.stdout + ran.stderr

        await press(pilot, "1", "v", sees=("check Gate", "verified"), seconds=400)
        await press(pilot, "1", "u", sees=("Take the kernels of Gate out", "-import kernels_for_vendor"))
        await press(pilot, "u", sees="replaces Gate no more")
        assert program.read_text() == PROGRAM and library.read_text() == LAYERS
        assert not (project / "kernels_for_vendor").exists()

        await press(pilot, "1", "a", sees="Which program imports the kernels of Gate?")
        await pilot.press("ctrl+u", "enter")
        await until(pilot, "Add to your program: import kernels_for_vendor", "no file of yours changes")
        await pilot.press("escape")
        await until_gone(pilot, "Add to your program")
        assert "Gate" in shown(pilot.app)
