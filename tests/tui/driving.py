"""Reads the screen and waits, as a user does, for the application that runs in the test's own process."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager

from kernel_assistant_tui.app import KernelAssistant


def opened(project, size=(120, 40), **flags):
    """Runs the application on `project` in a window of `size`, with short messages as a user sees them; a context
    manager that gives the pilot.
    """
    return KernelAssistant(project, flags).run_test(size=size, notifications=True)


@asynccontextmanager
async def ready(project, *keys, sees=(), size=(120, 40), **flags):
    """As `opened`, once the class Gate is on the screen; then as `press`."""
    async with opened(project, size, **flags) as pilot:
        await until(pilot, "Gate")
        await press(pilot, *keys, sees=sees)
        yield pilot


def shown(app):
    """The text of the screen, line by line, from the compositor."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def until(pilot, *wanted, seconds=120):
    """The screen's text, once every one of `wanted` holds: a text on the screen, or a function that returns True."""
    deadline = time.monotonic() + seconds
    while True:
        await pilot.pause(0.05)
        if (broken := pilot.app._exception) is not None:
            raise broken
        text = shown(pilot.app)
        missing = [one for one in wanted if not (one() if callable(one) else one in text)]
        if not missing:
            return text
        assert time.monotonic() < deadline, f"not seen: {missing}\n{text}"


async def press(pilot, *keys, sees, seconds=120):
    """Presses the keys; the screen's text, once `sees` holds: a text or a function as for `until`, or several."""
    await pilot.press(*keys)
    return await until(pilot, *(sees if isinstance(sees, tuple) else (sees,)), seconds=seconds)


async def until_gone(pilot, part, seconds=120):
    return await until(pilot, lambda: part not in shown(pilot.app), seconds=seconds)
