"""The pane with the load of the GPUs and the CPU and its history. The pane updates itself while it is visible."""

from __future__ import annotations

from textual import work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from kernel_assistant.session.threads import in_thread
from kernel_assistant_tui.devices.machine import DeviceHistory, DeviceMonitor
from kernel_assistant_tui.devices.reading import DeviceSample
from kernel_assistant_tui.widgets.gauges import device_lines

EVERY_S = 1.0
#: Fewest lines to fill: the height of the pane may depend on its content.
ROOM = 7


class Devices(VerticalScroll):
    """Shows the load of the devices. It reads them in a thread; a reading starts only after the previous one has
    ended."""

    DEFAULT_CSS = """
    Devices { height: 1fr; scrollbar-size-vertical: 1; }
    Devices > Static { height: auto; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, machine: DeviceMonitor | None = None, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._machine = machine or DeviceMonitor()
        self._history = DeviceHistory()
        self._reading: DeviceSample | None = None
        self._asking = False

    def compose(self) -> ComposeResult:
        yield Static("reading", id="device-lines", markup=False)

    def on_mount(self) -> None:
        self.set_interval(EVERY_S, self._read_if_visible)
        self._read_if_visible()

    def on_unmount(self) -> None:
        # Do not close while a thread calls the driver: the process ends anyway.
        if not self._asking:
            self._machine.close()

    def on_resize(self) -> None:
        self._draw()

    def _read_if_visible(self) -> None:
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
