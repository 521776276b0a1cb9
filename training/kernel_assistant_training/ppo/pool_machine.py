"""The machines of a pool as its head sees them: the one here, and those at the other end of a wire."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kernel_assistant.errors import InternalError, KernelAssistantError, UsageError
from kernel_assistant.records import to_builtins
from kernel_assistant.session.wire import error_from_wire
from kernel_assistant_training.ppo.pool_events import (
    Beat,
    Event,
    Given,
    Greeting,
    Lost,
    Refusal,
    StationOptions,
    event_from_wire,
)
from kernel_assistant_training.ppo.pool_kind import hold_to_version
from kernel_assistant_training.ppo.pool_station import Station
from kernel_assistant_training.ppo.pool_worker import Job

Message = dict[str, Any]
#: Until a program over there has said its first word.
HELLO_SECONDS = 120.0


class Machine(Protocol):
    """What it has to say goes to the `Hear` that it was made with."""

    name: str
    greeting: Greeting

    def give(self, number: int, job: Job) -> None:
        """Returns at once."""

    def close(self) -> None:
        """Ends its workers. Nothing is heard of it any more."""


Hear = Callable[[Machine, Event], None]


@dataclass(frozen=True)
class Member:
    """A machine that belongs to a pool, also while it is not there. `connect` waits until it is ready and raises the
    project's errors."""

    name: str
    connect: Callable[[StationOptions, Hear], Machine]
    far: bool = True


class Here:
    """See `Machine`."""

    def __init__(self, options: StationOptions, hear: Hear, logs: Path, cache: Path) -> None:
        self.name = "this machine"
        self.station = Station(options, lambda event: hear(self, event), logs, cache)
        self.greeting = self.station.greeting

    def give(self, number: int, job: Job) -> None:
        self.station.give(number, job)

    def close(self) -> None:
        self.station.close()


class Wire(Protocol):
    """Messages to and from an outpost. Sending and receiving happen in a thread each; both raise the project's errors
    where the other side is gone, or takes or says nothing for long."""

    def send(self, message: Message) -> None: ...

    def receive(self, seconds: float) -> Message: ...

    def close(self) -> None: ...


class Far:
    """See `Machine`. `silent_seconds` without a word, and it counts as lost."""

    def __init__(self, name: str, wire: Wire, options: StationOptions, hear: Hear, silent_seconds: float) -> None:
        self.name, self._wire, self._hear = name, wire, hear
        self._beat, self._silent = options.beat_seconds, silent_seconds
        self._outbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._ended = threading.Event()
        try:
            self.greeting = self._greet(options)
        except BaseException:
            wire.close()
            raise
        for run in (self._send, self._receive):
            threading.Thread(target=run, daemon=True).start()

    def give(self, number: int, job: Job) -> None:
        given = Given(number=number, task=job.task, candidates=job.candidates)
        self._outbox.put({"give": to_builtins(given)})

    def close(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._wire.close()

    def _greet(self, options: StationOptions) -> Greeting:
        hold_to_version(self.name, dict(self._wire.receive(HELLO_SECONDS)["hello"]))
        self._wire.send({"start": to_builtins(options)})
        while True:
            event = event_from_wire(self._wire.receive(self._silent)["event"])
            if isinstance(event, Greeting):
                return event
            if isinstance(event, Refusal):
                error = error_from_wire(event.error)
                raise type(error)(f"{self.name}: {error.cause}", error.next_step, detail=error.detail)

    def _send(self) -> None:
        """A beat where there is nothing else to say."""
        while True:
            try:
                message = self._outbox.get(timeout=self._beat)
            except queue.Empty:
                message = {"beat": True}
            if self._ended.is_set():
                return
            try:
                self._wire.send(message)
            except KernelAssistantError as error:
                self._lose(error)

    def _receive(self) -> None:
        while not self._ended.is_set():
            try:
                event = event_from_wire(self._wire.receive(self._silent)["event"])
            except KernelAssistantError as error:
                self._lose(error)
            except KeyError:
                self._lose(InternalError("it spoke out of turn"))
            else:
                if not isinstance(event, Beat) and not self._ended.is_set():
                    self._hear(self, event)

    def _lose(self, error: KernelAssistantError) -> None:
        if not self._ended.is_set():
            self._ended.set()
            what = "what it says cannot be read: " if isinstance(error, UsageError) else ""
            self._hear(self, Lost(why=f"{what}{error.cause}".removeprefix(f"{self.name}: ")))
            self._wire.close()
