"""Verify and time existing kernels again, as a job in a new tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_assistant.session.kinds.again import prepare_again, verdict_in
from kernel_assistant.session.reporting.check_report import ClassCheck
from kernel_assistant.session.reporting.verdicts import verdict
from kernel_assistant.session.threads import in_thread
from kernel_assistant_tui.jobs import OpenJob

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen


async def verify(screen: MainScreen) -> None:
    """Verify the kernels applied in the file, else the candidate of the job."""
    module, store, number = screen.subject, screen.work.project.store, screen.job_number
    if module is None:
        return
    # Applied kernels are on this machine, and so is the device that they are for.
    settings = screen.work.settings_for(module.path, {"host": "none"})
    projects = (screen.work.project.base,)
    prepared = await in_thread(
        lambda: prepare_again(module.path, module.name, settings, lambda: store.job(number), projects=projects)
    )
    if isinstance(prepared, ClassCheck):
        screen.say(words_of(prepared), severity="warning")
        return
    await screen.following.submit(*prepared, settings)
    screen.go("episode")


def verdict_of(job: OpenJob) -> str:
    """Describe how a job ended. Raises StoreError."""
    result = job.view.result
    if result is None:
        return job.view.state.value
    check = verdict_in(result.artifacts)
    return verdict(result) if check is None else words_of(check)


def words_of(check: ClassCheck) -> str:
    parts = [f"{check.name}: {check.status.value.replace('_', ' ')}: {check.message}", check.next_step]
    return "\n".join(part for part in parts if part)
