"""Messages to the application from the threads that follow jobs."""

from __future__ import annotations

from textual.message import Message

from kernel_assistant.events import AnyEvent


class JobEvents(Message):
    """A batch of events of one job, in order; at most twenty batches a second. `follower` is the number of the thread
    that sends it: a tab that is opened again gets a new thread."""

    def __init__(self, job: str, events: tuple[AnyEvent, ...], follower: int = 0) -> None:
        super().__init__()
        self.job = job
        self.events = events
        self.follower = follower


class JobLost(Message):
    """The host of a followed job has died; the thread starts a new one and continues."""

    def __init__(self, job: str, why: str) -> None:
        super().__init__()
        self.job = job
        self.why = why


class JobFollowed(Message):
    """No more events will come of this job: it has ended, or its host cannot be reached."""

    def __init__(self, job: str, follower: int = 0) -> None:
        super().__init__()
        self.job = job
        self.follower = follower
