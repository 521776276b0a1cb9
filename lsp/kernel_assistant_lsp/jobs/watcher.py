"""Follow jobs in threads and pass each event to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from kernel_assistant.events import AnyEvent
from kernel_assistant.session.reporting.following import Batch, EventSource, follow
from kernel_assistant.session.threads import tell


def follow_in_thread(
    source: EventSource,
    job: str,
    loop: asyncio.AbstractEventLoop,
    on_event: Callable[[AnyEvent], None],
    on_end: Callable[[], None],
) -> None:
    """Call `on_event` in the loop for every event of `job`, old and new, then `on_end`. Returns at once."""

    def on_events(events: Batch) -> None:
        for event in events:
            tell(loop, on_event, event)

    def run() -> None:
        follow(source, job, on_events, lambda error: None)
        tell(loop, on_end)

    threading.Thread(target=run, name=f"job-{job}", daemon=True).start()
