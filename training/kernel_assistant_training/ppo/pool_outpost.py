"""The far end of a pool: messages in, a station behind them, messages out."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_assistant.config import resolve
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.session.wire import error_to_wire
from kernel_assistant_training.ppo.pool_events import (
    Beat,
    Event,
    Given,
    Refusal,
    StationOptions,
    event_to_wire,
)
from kernel_assistant_training.ppo.pool_kind import own_version
from kernel_assistant_training.ppo.pool_station import Station

#: Beats that the head may leave out before it counts as gone.
PATIENCE = 24

Message = dict[str, Any]


class Outpost:
    """`say` gets messages from several threads. It ends, and `gone` is called, where the head says nothing for long."""

    def __init__(self, say: Callable[[Message], None], gone: Callable[[], None]) -> None:
        self._say, self._gone = say, gone
        self._heard, self._ended = time.monotonic(), threading.Event()
        self._station: Station | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="kernel-assistant-outpost-")
        say({"hello": own_version()})

    def take(self, message: Message) -> None:
        """`start` with options, `give` with a job, or `beat`."""
        self._heard = time.monotonic()
        if "start" in message:
            self._start(from_builtins(message["start"], StationOptions))
        elif "give" in message and self._station is not None:
            given = from_builtins(message["give"], Given)
            self._station.give(given.number, given.job())

    def close(self) -> None:
        self._ended.set()
        if self._station is not None:
            self._station.close()
        self._folder.cleanup()

    def _start(self, options: StationOptions) -> None:
        threading.Thread(target=self._beat, args=(options.beat_seconds,), daemon=True).start()
        try:
            cache = resolve()[0].cache_dir
            station = Station(options, self._tell, Path(self._folder.name), cache)
        except KernelAssistantError as error:
            self._tell(Refusal(error=error_to_wire(error)))
            return
        self._heard, self._station = time.monotonic(), station
        self._tell(self._station.greeting)

    def _tell(self, event: Event) -> None:
        self._say({"event": event_to_wire(event)})

    def _beat(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            # While it sets up, the head waits and is not expected to speak.
            if self._station is not None and time.monotonic() - self._heard > PATIENCE * seconds:
                self.close()
                self._gone()
                return
            self._tell(Beat())
