"""Follows each job in a thread of its own, which posts messages. The threads are daemons, so that exiting never waits
for a socket."""

from __future__ import annotations

import itertools
import threading

from textual.message import Message
from textual.message_pump import MessagePump

from kernel_assistant.events import AnyEvent
from kernel_assistant.session.reporting.following import EventSource, follow

#: Seconds between two batches of events: at most twenty redraws a second.
BATCH_S = 0.05


_followers = itertools.count(1)


class JobEvents(Message):
    """A batch of events of one job, in order; at most twenty batches a second. `follower` is the number of the sending
    thread: a tab that is closed and opened again gets a new thread, and messages of the old one are ignored."""

    def __init__(self, job: str, events: tuple[AnyEvent, ...], follower: int = 0) -> None:
        super().__init__()
        self.job = job
        self.events = events
        self.follower = follower


class JobLost(Message):
    """The session host of a followed job has died. The thread starts a new host and continues."""

    def __init__(self, job: str, why: str) -> None:
        super().__init__()
        self.job = job
        self.why = why


class JobFollowed(Message):
    """No more events of this job will come: it has ended, or its session host cannot be reached."""

    def __init__(self, job: str, follower: int = 0) -> None:
        super().__init__()
        self.job = job
        self.follower = follower


def follow_in_thread(source: EventSource, number: str, job: str, to: MessagePump) -> int:
    """Starts a thread that receives the events of job `number` from the session host `source` and posts them to the
    widget or screen `to`, as messages with the key `job`. Returns the number of the thread."""
    follower = next(_followers)

    def run() -> None:
        follow(
            source,
            number,
            lambda events: _post(to, JobEvents(job, events, follower)),
            lambda error: _post(to, JobLost(job, error.cause)),
            batch_s=BATCH_S,
        )
        _post(to, JobFollowed(job, follower))

    threading.Thread(target=run, name=f"job-{job}", daemon=True).start()
    return follower


def _post(to: MessagePump, message: JobEvents | JobLost | JobFollowed) -> None:
    if to.is_running:
        to.post_message(message)
