"""Everything that is known of a job, for a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant.records import to_builtins
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobKind, JobRow
from kernel_assistant_lsp.commands.arguments import class_of, text_of
from kernel_assistant_lsp.commands.diff import SOURCES, texts
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features.hover import about_job
from kernel_assistant_lsp.features.words import duration
from kernel_assistant_lsp.shown import show_text


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """The job's row and steps as `show --json` prints them, with the texts that it left: graph, sources, evaluation."""

    def look() -> tuple[dict[str, Any], JobRow]:
        store = context.history.store
        row = row_of(context, argument)
        files = row.result.artifacts if row.result is not None else {}
        found = {
            **to_builtins(row),
            "steps": to_builtins(store.steps(row.id)),
            "sources": texts(files, SOURCES),
            "graph": "".join(texts(files, ("graph.txt",)).values()),
            "evaluation": _document(files, "evaluation.json"),
            "deviceFacts": _document(files, "device.json"),
        }
        return found, row

    found, row = await in_thread(look)
    show_text(context, f"job-{row.id}.md", _page(found, row))
    return found


def _page(found: dict[str, Any], row: JobRow) -> str:
    """Markdown for clients without a page of their own: the result, then each candidate, then where the sources are."""
    files = row.result.artifacts if row.result is not None else {}
    sources = [path for name, path in files.items() if name.endswith(SOURCES)]
    tried = [
        f"- turn {step['turn']}: {one['outcome'].replace('_', ' ')}{_time(one)}"
        for step in found["steps"]
        for one in step["evaluations"]
    ]
    parts = [*about_job(row), "\n".join(tried), "\n".join(f"- {path}" for path in sources)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _time(evaluation: dict[str, Any]) -> str:
    timing = evaluation.get("timing")
    return "" if timing is None else f", {duration(timing['candidate_ms'])}"


def row_of(context: Context, argument: dict[str, Any]) -> JobRow:
    """The job named, else the newest of the class. For a thread."""
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
