"""List the jobs of this workspace: those that run, then those that ended, newest first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_assistant.apply.applied import source_text
from kernel_assistant.errors import UsageError
from kernel_assistant.records import Offer
from kernel_assistant.session.edits import is_appliable, place_of
from kernel_assistant.session.reporting.class_state import figure
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobKind, JobRow
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.text.documents import uri_of

_MOST = 100


async def run(context: Context, argument: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one object for each job. `active` is its view if this server follows it; `offer` and `figure` are those of
    its result; `appliable` says whether it can be applied to the file as it is. With `all` jobs of other folders are
    listed too."""
    folders = [] if argument.get("all") is True else context.folders()
    opened = {snapshot.path: snapshot.text for snapshot in context.documents.all()}

    def read() -> list[dict[str, Any]]:
        rows = context.history.store.jobs(limit=_MOST)
        mine = [row for row in rows if not folders or any(_path(row).is_relative_to(one) for one in folders)]
        texts = {
            path: opened.get(path) or _on_disk(path) for path in {_path(row) for row in mine if row.result is not None}
        }
        return [_summary(row, texts.get(_path(row))) for row in mine]

    stored = await in_thread(read)
    active = {view.job: view.document() for view in context.jobs.active()}
    rows = [{**row, "active": active.pop(row["job"], None)} for row in stored]
    return [
        {**view, "active": view, "result": None, "figure": "", "appliable": False} for view in active.values()
    ] + rows


def _path(row: JobRow) -> Path:
    return place_of(row.task, row.options).path


def _on_disk(path: Path) -> str | None:
    """Return the text of a file, None if it cannot be read."""
    try:
        return source_text(path)
    except UsageError:
        return None


def _summary(row: JobRow, text: str | None) -> dict[str, Any]:
    selection = place_of(row.task, row.options)
    appliable = text is not None and row.options.kind is JobKind.optimize and is_appliable(row, text)
    offer = Offer.none if row.result is None else row.result.offered
    return {
        **row.summary(),
        "uri": uri_of(selection.path),
        "class": selection.class_name,
        "offer": offer.value,
        "figure": figure(row.result) if offer.applicable else "",
        "appliable": appliable,
    }
