"""What threads that wait for a host tell the application."""

from __future__ import annotations

from textual.message import Message

from kernel_assistant.events import AnyEvent


class JobEvents(Message):
    """Events of one job in order, in batches: at most twenty a second. `follower` is the number of the thread that
    got them: a tab that was closed and opened again has another."""

    def __init__(self, job: str, events: tuple[AnyEvent, ...], follower: int = 0) -> None:
        super().__init__()
        self.job = job
        self.events = events
        self.follower = follower


class JobLost(Message):
    """The host of a followed job went away; the follower starts it anew and goes on."""

    def __init__(self, job: str, why: str) -> None:
        super().__init__()
        self.job = job
        self.why = why


class JobFollowed(Message):
    """Nothing more will come of this job: it has ended, or nobody can tell."""

    def __init__(self, job: str, follower: int = 0) -> None:
        super().__init__()
        self.job = job
        self.follower = follower
