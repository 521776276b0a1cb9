"""Times calls by the CPU's clock, or by events on the CUDA stream, which are read after they have completed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

#: Most calls with unread events; beyond that the program waits for the oldest of them.
_MOST_WAITING = 8192

Note = Callable[[float], None]


class CallClock:
    """Times calls: `begin` goes before a call, `end` after it. `end` passes the call's seconds to `note`, on CUDA some
    time later."""

    def __init__(self) -> None:
        self.events_used = 0
        self._free: dict[int, list[Any]] = {}
        self._waiting: deque[tuple[Any, Any, Note]] = deque()
        #: The end of the newest call that was read.
        self._newest: Any = None

    def begin(self, cuda: bool) -> Any:
        if not cuda:
            return None
        return self._record()

    def end(self, begun: Any, seconds: float, note: Note) -> None:
        """End a call, for which `begin` returned `begun`. `seconds` is the time by the CPU's clock; it is used if
        `begun` is None, that is, if no CUDA event was recorded."""
        if begun is None:
            note(seconds)
            return
        self.events_used += 1
        self._waiting.append((begun, self._record(), note))
        if len(self._waiting) > 64:
            self._read(wait_above=_MOST_WAITING)

    def mark(self, cuda: bool) -> Any:
        """Record an event for `since`; None on the CPU. Unlike events of calls, it is not reused."""
        if not cuda:
            return None
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def since(self, mark: Any) -> float:
        """Seconds on the device from the event `mark` to the end of the latest call whose events were read; 0 if the
        two cannot be compared."""
        newest = self._newest
        if mark is None or newest is None or mark.device != newest.device or not mark.query():
            return 0.0
        return float(mark.elapsed_time(newest)) * 1e-3

    def settle(self) -> None:
        """Read all events, and wait for those that are not complete."""
        self._read(wait_above=0)

    def _read(self, wait_above: int) -> None:
        while self._waiting:
            begun, ended, note = self._waiting[0]
            if not ended.query():
                if len(self._waiting) <= wait_above:
                    return
                ended.synchronize()
            self._waiting.popleft()
            note(begun.elapsed_time(ended) * 1e-3)
            self._give_back(begun)
            newest, self._newest = self._newest, ended
            if newest is not None:
                self._give_back(newest)

    def _give_back(self, event: Any) -> None:
        self._free.setdefault(event.device.index, []).append(event)

    def _record(self) -> Any:
        """Record an event on the current stream and return it. An event can only be reused on the device on which it
        was first recorded."""
        free = self._free.get(torch.cuda.current_device())
        event: Any = free.pop() if free else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def now() -> float:
    return time.perf_counter()
