"""Send a message to the model that works on a job; it reads the message in its next turn."""

from __future__ import annotations

from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant.session.client import Client
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import text_of


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return `{"job"}`. Raises UsageError for a job that does not run."""
    job, words = text_of(argument, "job"), text_of(argument, "words").strip()
    if not words:
        raise UsageError("there is nothing to say", "name words for the model")
    known = context.jobs.source(job)
    source, number = known if known is not None else (Client(context.settings(None)), job)
    await in_thread(lambda: source.say(number, words))
    return {"job": job}
