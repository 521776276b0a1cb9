"""Jobs of this workspace: those that run, then what was done, newest first."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.edits import place_of
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobRow
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.documents import uri_of

_MOST = 100


async def run(context: Context, argument: dict[str, Any]) -> list[dict[str, Any]]:
    """One object for each job; `active` are those that this server follows. With `all` of other folders too."""
    folders = [] if argument.get("all") is True else context.folders()
    rows = await in_thread(lambda: context.history.store.jobs(limit=_MOST))
    active = {view.job: view.document() for view in context.jobs.active()}
    found = [
        {**_summary(row), "active": active.pop(row.id, None)}
        for row in rows
        if not folders or any(place_of(row.task, row.options).path.is_relative_to(one) for one in folders)
    ]
    return [{**view, "active": view, "result": None} for view in active.values()] + found


def _summary(row: JobRow) -> dict[str, Any]:
    place = place_of(row.task, row.options)
    return {**row.summary(), "uri": uri_of(place.path), "class": place.class_name}
