"""Follow each job in a thread of its own: a daemon, so that exiting never waits for a socket."""

from __future__ import annotations

import itertools
import threading

from textual.message_pump import MessagePump

from kernel_assistant.session.reporting.following import EventSource, follow
from kernel_assistant_tui.host.messages import JobEvents, JobFollowed, JobLost

#: Seconds between two batches of events: at most twenty redraws a second.
BATCH_S = 0.05


_followers = itertools.count(1)


def follow_in_thread(source: EventSource, number: str, job: str, to: MessagePump) -> int:
    """Start to post the events of job `number` of `source` to `to` under the key `job`. Returns the thread's number."""
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
