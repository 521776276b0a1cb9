"""GPUs with their history, or the CPU where there is none. Reads by itself, while it is seen."""

from __future__ import annotations

from textual import work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from kernel_assistant.session.threads import in_thread
from kernel_assistant_tui.devices.machine import History, Machine
from kernel_assistant_tui.devices.reading import Reading
from kernel_assistant_tui.widgets.gauges import device_lines

EVERY_S = 1.0
#: Lines that there is room for in a pane that is as high as what it says.
ROOM = 7


class Devices(VerticalScroll):
    """The driver is asked in a thread; while an answer is late nothing more is asked."""

    DEFAULT_CSS = """
    Devices { height: 1fr; scrollbar-size-vertical: 1; }
    Devices > Static { height: auto; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, machine: Machine | None = None, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._machine = machine or Machine()
        self._history = History()
        self._reading: Reading | None = None
        self._asking = False

    def compose(self) -> ComposeResult:
        yield Static("reading", id="device-lines", markup=False)

    def on_mount(self) -> None:
        self.set_interval(EVERY_S, self._look)
        self._look()

    def on_unmount(self) -> None:
        # Not while a thread is in the driver: the process ends anyway.
        if not self._asking:
            self._machine.close()

    def on_resize(self) -> None:
        self._draw()

    def _look(self) -> None:
        seen = self.is_on_screen and self.screen.is_current
        if self._reading is None or (seen and not self._asking):
            self._read()

    @work(group="devices")
    async def _read(self) -> None:
        if self._asking:
            return
        self._asking = True
        try:
            self._reading = await in_thread(self._machine.read)
        finally:
            self._asking = False
        self._history.add(self._reading)
        self._draw()

    def _draw(self) -> None:
        if self._reading is not None:
            shown = self.query_one("#device-lines", Static)
            height = max(ROOM, self.size.height)
            lines = device_lines(self._reading, self._history, shown.content_size.width, height)
            shown.update(Content("\n").join(lines), layout=len(lines) != shown.content_size.height)
