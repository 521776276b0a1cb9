"""A tiny application with one widget."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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


async def until(pilot: Pilot[Any], ready: str | Callable[[], object], seconds: float = 20.0) -> None:
    """Waits until a text is on the screen or a function gives true, because threads read files for an unknown time."""
    for _ in range(int(seconds / 0.05)):
        if (ready in pilot.app.shown) if isinstance(ready, str) else ready():
            return
        await pilot.pause(0.05)
    raise AssertionError(f"not within {seconds} s; the screen:\n{pilot.app.shown}")


async def press(pilot: Pilot[Any], *keys: str, sees: str | Callable[[], object]) -> None:
    """Presses the keys, then waits as `until`."""
    await pilot.press(*keys)
    await until(pilot, sees)


@asynccontextmanager
async def hosted(widget: Widget, size: tuple[int, int] = (100, 24)) -> AsyncIterator[tuple[Host, Pilot[Any]]]:
    """The widget in an application of its own, which ends with the block."""
    app = Host(widget)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot
