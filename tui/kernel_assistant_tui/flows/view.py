"""Navigate: search, tabs, palette, help, training, quit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_assistant.session.threads import in_thread
from kernel_assistant_tui.widgets.modules import Modules

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen


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
    """Show the open training run; if none is open or it is focused already, ask which one to open."""
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


async def quit(screen: MainScreen) -> None:  # noqa: A001 - the action's name
    from kernel_assistant_tui.flows.leave import leave

    await leave(screen)
