"""Close the application. Running jobs can continue without it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kernel_assistant.session.threads import in_thread
from kernel_assistant_tui.flows.run import CANCEL_S

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen


async def leave(screen: MainScreen) -> None:
    """Exit. If jobs run, ask first: leave them to the host (Enter), cancel them, or stay."""
    from kernel_assistant_tui.dialogs.close import CloseDialog

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
