"""Starts, cancels and resumes jobs, and sends messages to their models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.threads import in_thread
from kernel_assistant_tui.project.module import Module

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen

#: Seconds to wait for the host to answer a request to cancel; then an error is shown.
CANCEL_S = 10.0


async def start(screen: MainScreen) -> None:
    if screen.module is not None:
        await begin(screen, screen.module, {})


async def options(screen: MainScreen) -> None:
    from kernel_assistant_tui.dialogs.start import StartDialog

    module = screen.module
    if module is None:
        return
    flags = await screen.app.push_screen_wait(StartDialog(module, screen.work.settings_for(module.path)))
    if flags is not None:
        await begin(screen, module, flags)


async def begin(screen: MainScreen, module: Module, flags: dict[str, object]) -> None:
    """Start a job for a class; `flags` override the settings. If the class has no inputs, ask the user for them
    first."""
    from kernel_assistant.session.prepare import prepare
    from kernel_assistant.source.declared import NoInputsError
    from kernel_assistant_tui.flows.inputs import offer

    settings = screen.work.settings_for(module.path, flags)
    if settings.sandbox == "none":
        screen.say("sandbox none: generated code runs with all your rights", severity="warning")
    try:
        task, chosen = await in_thread(
            lambda: prepare(module.spec, settings, inputs=settings.inputs, elsewhere=bool(settings.host))
        )
    except NoInputsError as error:
        if await offer(screen, module, error.cause):
            await begin(screen, module, flags)
        return
    await screen.following.submit(task, chosen, settings)
    screen.go("episode")


async def cancel(screen: MainScreen) -> None:
    """Cancel the scan if one is running, else the current job."""
    job = screen.job
    if screen.scanning is not None:
        screen.scanning.stop()
    elif job is not None:
        source, number = screen.following.source(job.key)
        screen.say(f"cancelling {job.label}; what it found is kept")
        try:
            await in_thread(lambda: source.cancel(number, timeout=CANCEL_S))
        except TimeoutError:
            screen.say("the session host does not answer; kernel-assistant host stop ends it", severity="error")


def steer(screen: MainScreen) -> None:
    screen.go("episode")
    screen.steering = True
    screen.set_focus(screen.query_one("#steer"))


async def send(screen: MainScreen, words: str) -> None:
    """Send `words` to the model, which reads them in its next turn. If that fails, put them back into the input
    line."""
    job = screen.job
    if job is None:
        return
    source, number = screen.following.source(job.key)
    try:
        await in_thread(lambda: source.say(number, words))
    except KernelAssistantError:
        screen.keep_words(words)
        raise
    screen.say(f"told job {job.key}: the model reads it at its next turn")


async def resume(screen: MainScreen) -> None:
    job = screen.job
    if job is not None:
        row = await in_thread(lambda: screen.work.project.store.job(job.key))
        screen.following.follow(row, show=True)
