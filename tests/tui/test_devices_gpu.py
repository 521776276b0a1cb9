"""The devices pane on a busy GPU: it shows the same figures as nvidia-smi.

With KERNEL_ASSISTANT_PICTURES=FOLDER the screens are written to FOLDER as SVG.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest
from textual.pilot import Pilot

from kernel_assistant_tui.devices.machine import DeviceMonitor
from kernel_assistant_tui.widgets import glyphs
from kernel_assistant_tui.widgets.devices import Devices
from kernel_assistant_tui.widgets.gauges import NAMELESS, UNLISTED
from tests.common.gpu_load import Load, busy_gpu, nvidia_smi
from tests.tui.device_row import GIB, Row, differences, row_of
from tests.tui.driving import opened, shown, until

# Other tests' work on the GPU comes and goes between two looks.
pytestmark = [pytest.mark.gpu, pytest.mark.timed]

#: Read before a test's environment is made clean.
PICTURES = os.environ.get("KERNEL_ASSISTANT_PICTURES", "")
SIZES = ((160, 45), (80, 24))
#: Per cent; a load that only multiplies has more.
BUSY = 50
IDLE = 10
TRIES = 12
#: Seconds over which processor time is counted.
COUNTED_S = 3.0


@pytest.fixture(scope="module")
def load() -> Iterator[Load]:
    with busy_gpu() as found:
        yield found


@pytest.fixture(autouse=True)
def utf8(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.delenv("LC_ALL", raising=False)
    glyphs.utf8.cache_clear()
    yield
    glyphs.utf8.cache_clear()


@pytest.fixture
def notes(capsys: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """Lines for the person who runs the test; the tested application uses the terminal meanwhile."""
    lines: list[str] = []
    yield lines
    with capsys.disabled():
        sys.stdout.write("".join(f"\n  {line}" for line in lines) + "\n")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_it_shows_what_nvidia_smi_says(project: Path, load: Load, size: tuple[int, int], notes: list[str]) -> None:
    async def play(pilot: Pilot[Any]) -> None:
        first = await seen(pilot, load, lambda row: row.busy is not None and row.busy > BUSY)
        row = await agreeing(pilot, load)
        assert row.memory is not None and row.memory >= load.held
        await seen(pilot, load, lambda row: row.bars > first.bars)
        told = processes_of(load)
        text = shown(pilot.app)
        notes.append(f"the driver lists {told}, the load is {load.process.pid}; {row}")
        assert_processes(text, load, told)

    driven(project, size, play)


def test_a_load_that_ends_is_gone_and_an_idle_pane_is_counted(project: Path, load: Load, notes: list[str]) -> None:
    async def play(pilot: Pilot[Any]) -> None:
        await seen(pilot, load, lambda row: row.memory is not None and row.memory >= load.held)
        load.end()
        idle = await seen(pilot, load, lambda row: (row.memory or 0.0) < load.held / 2 and (row.busy or 0.0) < IDLE)
        said = await asyncio.to_thread(nvidia_smi, load.uuid)
        notes.append(f"idle: {idle}, nvidia-smi: {said}")
        # What the driver keeps for itself is used by nobody.
        assert idle.memory is not None and said.memory is not None and abs(idle.memory - said.memory) < 0.2 * GIB
        text = shown(pilot.app)
        assert f"{load.process.pid:>7} " not in text
        with_pane = await processor_time()
        await pilot.press("1")
        await until(pilot, "Gate")
        without = await processor_time()
        await pilot.press("4")
        await until(pilot, "cores, each now")
        notes.append(f"processor time in ms each second: {with_pane:.1f} with the pane, {without:.1f} without it")
        notes.append(f"one reading: {reading_ms():.1f} ms")

    driven(project, (80, 24), play)


def driven(project: Path, size: tuple[int, int], play: Callable[[Pilot[Any]], Awaitable[None]]) -> None:
    """Runs `play` with the devices shown, and keeps a picture of the last screen."""

    async def run() -> None:
        async with opened(project, size=size) as pilot:
            await until(pilot, "Gate")
            await pilot.press("4")
            try:
                await play(pilot)
            finally:
                keep_picture(pilot.app.export_screenshot())

    asyncio.run(run())


def keep_picture(svg: str) -> None:
    """Writes the picture under the name of the test, if pictures are wanted."""
    if PICTURES:
        test = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].partition(" ")[0]
        name = re.sub(r"\W+", "-", test).strip("-")
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        Path(PICTURES, f"{name}.svg").write_text(svg, encoding="utf-8")


async def seen(pilot: Pilot[Any], load: Load, ready: Callable[[Row], bool]) -> Row:
    """The GPU's row, once it is `ready`."""
    said = await asyncio.to_thread(nvidia_smi, load.uuid)
    found: list[Row] = []

    def look() -> bool:
        row = row_of(shown(pilot.app), said)
        if row is not None:
            found.append(row)
        return row is not None and ready(row)

    await until(pilot, look)
    return found[-1]


async def agreeing(pilot: Pilot[Any], load: Load) -> Row:
    """The GPU's row, once it agrees with nvidia-smi just before or just after; power takes a while to rise."""
    pane = pilot.app.screen.query_one(Devices)
    tried = []
    for _ in range(TRIES):
        before = await asyncio.to_thread(nvidia_smi, load.uuid)
        known = pane._reading
        await until(pilot, lambda known=known: pane._reading is not known)
        row = row_of(shown(pilot.app), before)
        after = await asyncio.to_thread(nvidia_smi, load.uuid)
        assert row is not None, shown(pilot.app)
        wrong = differences(row, before, after)
        if not wrong:
            return row
        tried.append("; ".join(wrong))
    raise AssertionError("\n".join([*tried, shown(pilot.app)]))


def processes_of(load: Load) -> list[tuple[int, int | None]]:
    """The id and bytes of each process that the driver lists; none if the driver refuses."""
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(load.uuid)
        return [(one.pid, one.usedGpuMemory) for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def assert_processes(text: str, load: Load, told: list[tuple[int, int | None]]) -> None:
    """In a container the driver may list no processes, or ids without meaning here: then the pane says so."""
    rows = {pid: line for pid, _ in told for line in text.splitlines() if f": {pid:>7} " in line}
    left = re.search(r"and (\d+) more processes", text)
    assert len(rows) + (int(left[1]) if left else 0) == len(told), text
    if not told:
        assert UNLISTED in text
    elif left and load.process.pid not in rows:
        assert rows, text
    elif load.process.pid not in rows:
        assert any(NAMELESS in row for row in rows.values()), text
    else:
        row, memory = rows[load.process.pid], dict(told)[load.process.pid]
        assert psutil.Process(load.process.pid).name() in row
        assert memory is None or f"{memory / 2**30:.1f}G" in row or f"{memory / 2**30:.0f}G" in row


async def processor_time() -> float:
    """Milliseconds of processor time of this process, all threads, for each second that passes."""
    before, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(COUNTED_S)
    return 1000 * (time.process_time() - before) / (time.perf_counter() - began)


def reading_ms() -> float:
    """The median time of five readings."""
    machine, taken = DeviceMonitor(), []
    machine.read()
    for _ in range(5):
        began = time.perf_counter()
        machine.read()
        taken.append(1000 * (time.perf_counter() - began))
    machine.close()
    return sorted(taken)[2]
