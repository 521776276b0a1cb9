"""Confirm the candidate of a job that was cut short or whose gain was unclear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_assistant.session.kinds.again import prepare_confirm
from kernel_assistant.session.threads import in_thread

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen


async def confirm(screen: MainScreen) -> None:
    """Start the confirmation as a job in a new tab."""
    job, module, store = screen.job, screen.subject, screen.work.project.store
    if module is None:
        return
    number = job.number if job is not None and job.is_unconfirmed else module.state.unconfirmed
    settings = screen.work.settings_for(module.path, {"host": "none"})
    prepared = await in_thread(lambda: prepare_confirm(store, store.job(number)))
    await screen.following.submit(*prepared, settings)
    screen.go("episode")
