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
    """Times calls: `begin` goes before a call, `end` after it. `end` passes the call's seconds to the function `note`;
    on CUDA that happens some time later, when the events have completed."""

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
        """Ends a call, for which `begin` returned `begun`. `note` is called with the call's seconds: `seconds`, the
        time by the CPU's clock, if `begun` is None (no CUDA event was recorded), otherwise later with those between the
        events."""
        if begun is None:
            note(seconds)
            return
        self.events_used += 1
        self._waiting.append((begun, self._record(), note))
        if len(self._waiting) > 64:
            self._read(wait_above=_MOST_WAITING)

    def mark(self, cuda: bool) -> Any:
        """Records a CUDA event for `since` and returns it; None on the CPU. Unlike events of calls, it is not
        reused."""
        if not cuda:
            return None
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def since(self, mark: Any) -> float:
        """Returns the seconds on the device from the event `mark` to the end of the latest call whose events were read;
        0 if the two cannot be compared."""
        newest = self._newest
        if mark is None or newest is None or mark.device != newest.device or not mark.query():
            return 0.0
        return float(mark.elapsed_time(newest)) * 1e-3

    def settle(self) -> None:
        """Reads the events of all calls, and waits for those that are not complete."""
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
        """Records an event on the current stream and returns it. An event can only be reused on the device on which it
        was first recorded."""
        free = self._free.get(torch.cuda.current_device())
        event: Any = free.pop() if free else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def now() -> float:
    return time.perf_counter()
