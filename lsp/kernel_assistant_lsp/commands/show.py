"""Return everything that is known of a job, for a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant.records import Offer, to_builtins
from kernel_assistant.session.edits import place_of
from kernel_assistant.session.kinds.outcome import is_unconfirmed
from kernel_assistant.session.reporting.class_state import staleness_of
from kernel_assistant.session.reporting.verdicts import apply_title, obstacle_rows, verdict, verdicts
from kernel_assistant.session.reporting.words import of_spending
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobKind, JobRow
from kernel_assistant_lsp.commands.diff import SOURCES, texts
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features.hover import about_job
from kernel_assistant_lsp.features.words import duration
from kernel_assistant_lsp.flows.arguments import class_of, text_of
from kernel_assistant_lsp.shown import show_text
from kernel_assistant_lsp.text.documents import from_disk, uri_of


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return the job's row and steps as `show --json` prints them, with its graph, sources and evaluation."""

    def read() -> tuple[dict[str, Any], JobRow]:
        store = context.history.store
        row = row_of(context, argument)
        files = row.result.artifacts if row.result is not None else {}
        details = {
            **to_builtins(row),
            "steps": to_builtins(store.steps(row.id)),
            "sources": texts(files, SOURCES),
            "graph": "".join(texts(files, ("graph.txt",)).values()),
            "evaluation": _document(files, "evaluation.json"),
            "deviceFacts": _document(files, "device.json"),
            "stale": _stale(context, row),
            "verdict": "" if row.result is None else verdict(row.result),
            "verdicts": [] if row.result is None else verdicts(row.result),
            "spent": "" if row.result is None else of_spending(row.result.spent),
            "offer": (Offer.none if row.result is None else row.result.offered).value,
            "obstacles": [] if row.result is None else obstacle_rows(row.result),
            "applyTitle": "Apply" if row.result is None else apply_title(row.result.offered, row.result.gain_over),
            "unconfirmed": row.result is not None and is_unconfirmed(row.result),
        }
        return details, row

    details, row = await in_thread(read)
    show_text(context, f"job-{row.id}.md", _page(details, row))
    return details


def _page(details: dict[str, Any], row: JobRow) -> str:
    """Return Markdown for clients without a page of their own: the result, each candidate, paths of the sources."""
    files = row.result.artifacts if row.result is not None else {}
    sources = [path for name, path in files.items() if name.endswith(SOURCES)]
    tried = [
        f"- turn {step['turn']}: {one['outcome'].replace('_', ' ')}{_time(one)}"
        for step in details["steps"]
        for one in step["evaluations"]
    ]
    stale = f"**{details['stale']}**: what follows is of the text that it ran." if details["stale"] else ""
    parts = [stale, *about_job(row), "\n".join(tried), "\n".join(f"- {path}" for path in sources)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _stale(context: Context, row: JobRow) -> str:
    """Return why the result is stale for the class as it is now, "" if it is not or if the file is gone."""
    selection = place_of(row.task, row.options)
    try:
        text = (context.documents.of_path(selection.path) or from_disk(uri_of(selection.path), "utf-16")).text
    except UsageError:
        return ""
    return staleness_of(row, text)


def _time(evaluation: dict[str, Any]) -> str:
    timing = evaluation.get("timing")
    return "" if timing is None else f", {duration(timing['candidate_ms'])}"


def row_of(context: Context, argument: dict[str, Any]) -> JobRow:
    """Return the job that `argument` names, else the newest of the class. Call it in a thread."""
    store = context.history.store
    if "job" in argument:
        return store.job(text_of(argument, "job"))
    snapshot, name = class_of(context, argument)
    for row in store.jobs_of(str(snapshot.path)):
        if row.task.class_name == name and row.options.kind is JobKind.optimize:
            return row
    raise UsageError(f"there is no job for {name}", "optimize it first")


def _document(artifacts: dict[str, str], name: str) -> Any:
    path = Path(artifacts.get(name, ""))
    return json.loads(path.read_bytes()) if path.is_file() else None
