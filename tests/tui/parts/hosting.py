"""A tiny application with one widget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from textual.app import App
from textual.pilot import Pilot
from textual.widget import Widget


class Host(App[None]):
    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget
        self.notes: list[str] = []

    def compose(self):
        yield self.widget

    def notify(self, message: str, **options: Any) -> None:
        self.notes.append(message)

    @property
    def rows(self) -> list[str]:
        """The text on the screen."""
        return [strip.text.rstrip() for strip in self.screen._compositor.render_strips()]

    @property
    def shown(self) -> str:
        return "\n".join(self.rows)


async def until(pilot: Pilot[Any], ready: Callable[[], object], seconds: float = 20.0) -> None:
    """Waits until `ready()`, because threads read files for an unknown time."""
    for _ in range(int(seconds / 0.05)):
        if ready():
            return
        await pilot.pause(0.05)
    raise AssertionError(f"not within {seconds} s; the screen:\n{pilot.app.shown}")


def driven(widget: Widget, play: Callable[[Host, Pilot[Any]], Awaitable[None]], size: tuple[int, int]) -> None:
    async def run() -> None:
        app = Host(widget)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await play(app, pilot)

    asyncio.run(run())
