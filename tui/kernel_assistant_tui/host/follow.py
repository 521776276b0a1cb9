"""A thread for each followed job; threads are daemons, so that leaving never waits for a socket."""

from __future__ import annotations

import itertools
import threading

from textual.message_pump import MessagePump

from kernel_assistant.session.following import Source, follow
from kernel_assistant_tui.host.messages import JobEvents, JobFollowed, JobLost

#: Twenty redraws a second are enough, also over SSH.
BATCH_S = 0.05


_followers = itertools.count(1)


def follow_in_thread(source: Source, number: str, job: str, to: MessagePump) -> int:
    """Post the events of job `number` of `source` to `to`, as those of `job`. Returns the follower's number at once."""
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
