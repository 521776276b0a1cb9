"""Actions for navigation and exit: search, tabs, palette, help, training, history. Also copies the text that a pane
shows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kernel_assistant.session.reporting.words import ago
from kernel_assistant.session.threads import in_thread
from kernel_assistant_tui.flows.run import CANCEL_S
from kernel_assistant_tui.widgets.episode import Episode
from kernel_assistant_tui.widgets.modules import Modules
from kernel_assistant_tui.widgets.result import Result

if TYPE_CHECKING:
    from kernel_assistant_tui.dialogs.history import HistoryEntry
    from kernel_assistant_tui.screens.main import MainScreen

#: Number of the newest jobs that are listed.
MOST = 2_000


def search(screen: MainScreen) -> None:
    screen.go("modules")
    screen.query_one(Modules).search()


def previous_tab(screen: MainScreen) -> None:
    screen.following.step(-1)


def next_tab(screen: MainScreen) -> None:
    screen.following.step(1)


def close_tab(screen: MainScreen) -> None:
    if screen.job is not None:
        screen.following.close(screen.job.key)


def palette(screen: MainScreen) -> None:
    screen.app.action_command_palette()


async def help(screen: MainScreen) -> None:  # noqa: A001 - the action's name
    from kernel_assistant_tui.dialogs.help import HelpDialog

    await screen.app.push_screen_wait(HelpDialog(screen.work.preferences))


async def training(screen: MainScreen) -> None:
    """Show the open training run. If none is open, or its pane is focused already, ask which run to open."""
    from kernel_assistant_tui.dialogs.training import RunDialog
    from kernel_assistant_tui.runs.find import newest_runs

    if not screen.training_open or screen.pane == "training":
        kept = screen.work.settings.state_dir / "training"
        runs = await in_thread(lambda: newest_runs(screen.work.root, kept))
        root = screen.work.root
        run = await screen.app.push_screen_wait(RunDialog(runs, root if root.is_dir() else root.parent))
        if run is None:
            return
        screen.open_training(run)
    screen.go("training")
    screen.show_job()


async def history(screen: MainScreen) -> None:
    """Show the history of jobs, and open the job that the user chooses in a tab."""
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


def copy(screen: MainScreen) -> None:
    """Copy the text that is selected with the mouse; else the text of the focused pane, or the name of the chosen
    class."""
    marked = screen.get_selected_text()
    if marked:
        _copy(screen, marked, "what is marked")
    elif screen.pane == "episode" and (transcript := screen.query_one(Episode).text):
        _copy(screen, transcript, "the transcript")
    elif screen.pane == "result" and (shown := screen.query_one(Result).text):
        _copy(screen, shown, "what the result shows")
    elif screen.module is not None:
        _copy(screen, screen.module.spec, screen.module.spec)


def _copy(screen: MainScreen, text: str, what: str) -> None:
    screen.app.copy_to_clipboard(text)
    screen.say(f"copied {what}")


async def quit(screen: MainScreen) -> None:  # noqa: A001 - the action's name
    """Exit the application. If jobs are running, ask first: leave them to the host (Enter), cancel them, or stay."""
    from kernel_assistant_tui.dialogs.questions import CloseDialog

    running = screen.following.jobs.running()
    if running:
        chosen = await screen.app.push_screen_wait(CloseDialog([one.label for one in running]))
        if chosen is None or chosen == "stay":
            return
        if chosen == "cancel":
            for job in running:
                source, number = screen.following.source(job.key)
                try:
                    await in_thread(partial(source.cancel, number, timeout=CANCEL_S))
                except TimeoutError:
                    pass  # the host is still cancelling it; do not wait
    if screen.scanning is not None:
        screen.scanning.stop()
    screen.app.exit(0)
