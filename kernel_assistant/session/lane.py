"""One device, one thread, one job at a time: measuring wants the device alone."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from kernel_assistant.session.event_log import EventLog
from kernel_assistant.store import JobRow


class Job:
    """A job in the host's hands: its row as submitted, its log, its cancel token, and what the user said to it."""

    def __init__(self, row: JobRow, log: EventLog, *, resumed: bool) -> None:
        self.row = row
        self.log = log
        self.resumed = resumed
        self.cancel = threading.Event()
        self.said: list[str] = []


class Lane:
    """Runs jobs in the order in which they came."""

    def __init__(self, name: str, run: Callable[[Job], None]) -> None:
        self._run = run
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"lane-{name}", daemon=True)
        self._thread.start()

    def add(self, job: Job) -> None:
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()

    def remove(self, job: Job) -> bool:
        """Take a job that has not begun out of the queue; False if it has begun."""
        with self._changed:
            if job not in self._waiting:
                return False
            self._waiting.remove(job)
            return True

    def close(self, timeout: float) -> bool:
        """Run nothing more; True if the job that was running ended in time."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            self._run(job)

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return None if self._closed else self._waiting.popleft()
