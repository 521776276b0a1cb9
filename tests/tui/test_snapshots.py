"""Pictures (SVG) of the application at three sizes and in two themes, with a recorded job. After an intended change run
`pytest tests/tui/test_snapshots.py --snapshot-update`, and look at the changed files in a browser.
"""

from __future__ import annotations

import time

import pytest

from kernel_assistant.config import user_file
from kernel_assistant_tui.app import KernelAssistant
from kernel_assistant_tui.devices.machine import DeviceHistory, DeviceMonitor
from kernel_assistant_tui.devices.reading import Cpu, DeviceSample, Gpu, Process
from kernel_assistant_tui.widgets.result import Result
from tests.tui.conftest import BARE
from tests.tui.driving import press, until
from tests.tui.recorded_job import add_recorded
from tests.tui.recorded_run import report, write_run

SIZES = ((80, 24), (120, 40), (200, 60))
THEMES = ("kernel-dark", "kernel-light")
#: Of a size in one theme nothing is new in the other.
LOOKS = [*((THEMES[0], size) for size in SIZES), (THEMES[1], SIZES[1])]
#: Snapshots take room: two columns are there at 120 already, and colours are those of the report.
NARROWER = [look for look in LOOKS if look[0] == THEMES[0] and look[1] != SIZES[2]]
GB = 2**30
READING = DeviceSample(
    gpus=(
        Gpu(0, "H200", 87, 61 * GB, 140 * GB, 512.0, 700.0, 63, (Process(4711, "python train.py", 60 * GB),)),
        Gpu(1, "H200", 0, 1 * GB, 140 * GB, 76.0, 700.0, 31),
    ),
    cpu=Cpu((12.0, 80.0, 3.0, 45.0), 40 * GB, 128 * GB, 2.5),
)
BEFORE = tuple(50 + 49 * ((place * 37) % 100 - 50) / 50 for place in range(120))


@pytest.fixture
def standing_still(monkeypatch):
    """A machine with constant readings, at a constant time."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.delenv("LC_ALL", raising=False)
    time.tzset()
    monkeypatch.setattr(DeviceMonitor, "read", lambda self: READING)
    monkeypatch.setattr(DeviceHistory, "of", lambda self, name: BEFORE)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def application(standing_still, settings, project):
    """A function: theme → the application on a project with a finished job, and a class without declared inputs."""
    add_recorded(settings, project)
    (project / "bare.py").write_text(BARE)

    def make(theme):
        user_file().parent.mkdir(parents=True, exist_ok=True)
        user_file().write_text(f'[tui]\ntheme = "{theme}"\n')
        return KernelAssistant(project)

    return make


async def opened_job(pilot):
    """The recorded job, chosen in the list, after threads have read all of its files."""
    await until(pilot, "GatedRMSNorm")
    await press(pilot, "down", "enter", sees=("1 GatedRMSNorm", lambda: pilot.app.screen.query_one(Result)._facts))
    await pilot.pause()


@pytest.mark.parametrize(
    ("theme", "size"), LOOKS, ids=lambda one: one if isinstance(one, str) else f"{one[0]}x{one[1]}"
)
def test_a_job_that_has_ended(snap_compare, application, theme, size):
    assert snap_compare(application(theme), terminal_size=size, run_before=opened_job)


@pytest.mark.parametrize(
    ("theme", "size"), NARROWER, ids=lambda one: one if isinstance(one, str) else f"{one[0]}x{one[1]}"
)
def test_the_transcript_and_the_source_of_it(snap_compare, application, theme, size):
    async def open_it(pilot):
        await opened_job(pilot)
        await press(pilot, "l", sees="dcec3b55 of turn")
        await pilot.press("2", "home", "pagedown", "pagedown")
        await pilot.pause()

    assert snap_compare(application(theme), terminal_size=size, run_before=open_it)


@pytest.mark.parametrize("theme", THEMES)
def test_the_first_look(snap_compare, application, theme):
    async def look(pilot):
        await until(pilot, "GatedRMSNorm", "H200")

    assert snap_compare(application(theme), terminal_size=(120, 40), run_before=look)


def test_a_run_of_several_stages(snap_compare, application, project):
    run = write_run(project / "runs" / "first")
    for step in range(40):
        reward = 1.0 - 0.9**step
        report(run / "04-ppo-single", step, "ppo_single", reward=reward, held_out_reward=reward - 0.1, pass_rate=reward)

    async def open_it(pilot):
        await until(pilot, "GatedRMSNorm", "H200")
        await press(pilot, "5", sees="runs/first")
        await press(pilot, "enter", sees=("held out reward", "pass rate"))

    assert snap_compare(application(THEMES[0]), terminal_size=(120, 40), run_before=open_it)
