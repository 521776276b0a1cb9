"""The terminal interface with `--host`: a job runs there, the next session finds it, and its result is applied here."""

from __future__ import annotations

import pytest

from tests.tui.driving import opened, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.asyncio]


async def test_a_job_of_the_terminal_runs_over_there(sshd, module, two_turns):
    async with opened(module.parent, (130, 40), host="box") as pilot:
        await until(pilot, "Net")
        await pilot.press("s")
        await until(pilot, "box:1 Net", "started on cpu")
    async with opened(module.parent, (130, 40), host="box") as pilot:
        await until(pilot, "box:1 Net", "ended:")
        # Its number here: the result is in the local store, with its files.
        await until(pilot, lambda: pilot.app.main.job.number == "1")
        row = pilot.app.project.store.job("1")
        assert row.device.endswith("of box") and row.task.path == str(module)
        assert pilot.app.main.job.has_kernels
        await pilot.press("3", "a")
        await until(pilot, f"Apply job 1 to {module}?"[:60])
    # In later history it is a job like any other: its transcript is here.
    async with opened(module.parent, (130, 40), host="none") as pilot:
        await until(pilot, "Net")
        await pilot.press("h", "enter")
        await until(pilot, "1 Net", "ended:")
        told = [line.text for line in pilot.app.main.job.view.lines]
        assert told[0].startswith("queued for cpu") and any(text.startswith("turn ") for text in told)
        artifacts = pilot.app.main.job.view.result.artifacts
        assert artifacts["job"] == "1" and artifacts["plan.json"].startswith(str(pilot.app.settings.state_dir))
