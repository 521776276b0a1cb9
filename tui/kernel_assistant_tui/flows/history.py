"""Show the history of jobs and open the chosen one in a tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_assistant.session.reporting.words import ago
from kernel_assistant.session.threads import in_thread

if TYPE_CHECKING:
    from kernel_assistant_tui.dialogs.history import HistoryEntry
    from kernel_assistant_tui.screens.main import MainScreen

#: Number of the newest jobs that are listed.
MOST = 2_000


async def history(screen: MainScreen) -> None:
    from kernel_assistant_tui.dialogs.history import HistoryDialog

    entries = await in_thread(lambda: _read(screen))
    number = await screen.app.push_screen_wait(HistoryDialog(entries))
    if number:
        job = await screen.following.open(number)
        screen.go("result" if job.has_kernels else "episode")


def _read(screen: MainScreen) -> list[HistoryEntry]:
    from kernel_assistant_tui.dialogs.history import past

    project = screen.work.project
    if not project.has_store:
        return []
    rows = project.store.jobs(limit=MOST)
    base = project.root if project.root.is_dir() else project.root.parent
    alive = any(row.state.active for row in rows) and screen.work.client.status() is not None
    return [past(row, ago(row.ended or row.started or row.created), base, alive=alive) for row in rows]
