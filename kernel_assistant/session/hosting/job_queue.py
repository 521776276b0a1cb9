"""The job queue of one device: one thread runs one job at a time, because measurements need the device alone."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from kernel_assistant.session.hosting.event_log import EventLog
from kernel_assistant.store import JobRow


class QueuedJob:
    """A queued or running job. `row` is its row of the store when it was submitted; `resumed`: an earlier run was
    interrupted; setting `cancel` stops it; `said` has the user's messages to its models."""

    def __init__(self, row: JobRow, log: EventLog, *, resumed: bool) -> None:
        self.row = row
        self.log = log
        self.resumed = resumed
        self.cancel = threading.Event()
        self.said: list[str] = []


class JobQueue:
    """Runs jobs in the order in which they were submitted."""

    def __init__(self, name: str, run: Callable[[QueuedJob], None]) -> None:
        self._run = run
        self._waiting: deque[QueuedJob] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"lane-{name}", daemon=True)
        self._thread.start()

    def add(self, job: QueuedJob) -> None:
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()

    def remove(self, job: QueuedJob) -> bool:
        """Removes a job that has not started from the queue. Returns False if it has started."""
        with self._changed:
            if job not in self._waiting:
                return False
            self._waiting.remove(job)
            return True

    def close(self, timeout: float) -> bool:
        """Starts no more jobs, and waits up to `timeout` seconds for the running job. Returns whether no job is running
        now."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            self._run(job)

    def _next(self) -> QueuedJob | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return None if self._closed else self._waiting.popleft()
