"""Events of terminals and projects while the application shows them, such as deleted files."""

from __future__ import annotations

import pytest
from textual.css.query import NoMatches
from textual.worker import WorkerFailed

from kernel_assistant_tui.widgets.devices import Devices
from kernel_assistant_tui.widgets.footer import Keys
from tests.tui.conftest import BARE, MODEL
from tests.tui.driving import opened, press, ready, until, until_gone

pytestmark = pytest.mark.asyncio


@pytest.mark.programs
@pytest.mark.slow
async def test_any_size_of_window_is_lived_through(project):
    async with ready(project) as pilot:
        for width, height in ((0, 0), (1, 1), (200, 1), (1, 60), (33, 8), (34, 9), (80, 24), (119, 40), (300, 100)):
            await pilot.resize_terminal(width, height)
            await pilot.press("2", "3", "4", "1", "down")
        await pilot.resize_terminal(80, 24)
        await until(pilot, "Gate")


async def test_a_window_has_no_pane_one_or_all_of_them_by_its_size(project):
    async with opened(project, (33, 8)) as pilot:
        await until(pilot, "too small")
        await pilot.resize_terminal(80, 24)
        await until(pilot, "Gate")
        for key, seen in (("2", "#episode"), ("3", "#result"), ("4", "#devices"), ("1", "#modules")):
            await pilot.press(key)
            await pilot.pause()
            panes = ("#modules", "#episode", "#result", "#devices")
            shown = [one for one in panes if pilot.app.screen.query_one(one).region.area]
            assert shown == [seen]
            assert pilot.app.screen.query_one(seen).region.bottom == pilot.app.screen.query_one(Keys).region.y
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert all(pilot.app.screen.query_one(one).region.area for one in panes)


async def test_a_project_of_a_thousand_files(project):
    for number in range(1000):
        folder = project / f"part{number % 20}"
        folder.mkdir(exist_ok=True)
        (folder / f"m{number}.py").write_text(BARE.replace("Bare", f"Bare{number}"))
    async with opened(project, (80, 24)) as pilot:
        await until(pilot, "1001")
        await press(pilot, "slash", *"bare777", sees=("Bare777", "1 of 1001"))


async def test_files_come_change_and_go_under_it(project):
    path = project / "model.py"
    async with ready(project, size=(80, 24)) as pilot:
        (project / "bare.py").write_text(BARE)
        await until(pilot, "Bare")
        path.write_text(MODEL.replace("Gate", "Renamed"))
        await until(pilot, "Renamed")
        path.unlink()
        await until_gone(pilot, "Renamed")
        (project / "bare.py").write_text("class Broken(nn.Module:\n")
        await until_gone(pilot, "Bare")
        (project / "bare.py").write_bytes(b"\xff\xfe\x00\x80")
        path.write_text(MODEL)
        await until(pilot, "Gate")


async def test_a_file_that_is_deleted_before_its_class_is_started(project):
    path = project / "model.py"
    async with ready(project, size=(80, 24)) as pilot:
        path.unlink()
        await press(pilot, "s", sees="model.py")
        await until_gone(pilot, "Gate")


async def test_a_folder_that_goes_away(project):
    async with ready(project, size=(80, 24)) as pilot:
        (project / "model.py").unlink()
        project.rmdir()
        await until(pilot, "No nn.Module classes", "kernel-assistant")


async def test_a_reading_that_comes_while_it_closes_is_no_error(project, monkeypatch):
    late = []

    def unmounted(devices):
        async def read():
            assert not devices.children
            late.append(devices)
            devices._draw()

        devices.app.run_worker(read)

    monkeypatch.setattr(Devices, "on_unmount", unmounted)
    async with opened(project) as pilot:
        await until(pilot, "Gate", lambda: pilot.app.screen.query_one(Devices)._reading is not None)
    assert late
    assert not pilot.app.return_code


async def test_a_widget_that_is_missing_while_it_runs_is_an_error(project):
    async def lose_it():
        async with opened(project) as pilot:
            await until(pilot, "Gate", lambda: pilot.app.screen.query_one(Devices)._reading is not None)
            devices = pilot.app.screen.query_one(Devices)
            await devices.remove_children()
            devices.call_later(devices._draw)
            await until(pilot, lambda: False)

    # Drawn by the worker that reads the machine, it is that worker's failure.
    with pytest.raises((NoMatches, WorkerFailed), match="device-lines"):
        await lose_it()
