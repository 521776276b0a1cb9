"""Commands that show the result of a job: its report, the change to the file, its kernels and their assembly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernel_assistant.apply import unified_diff
from kernel_assistant.errors import UsageError
from kernel_assistant.records import Offer, OpGraph, Plan, decode, to_builtins
from kernel_assistant.session.edits import apply_job, place_of
from kernel_assistant.session.kinds.outcome import is_unconfirmed
from kernel_assistant.session.reporting.class_state import figure, staleness_of
from kernel_assistant.session.reporting.verdicts import apply_title, obstacle_rows, verdict, verdicts
from kernel_assistant.session.reporting.words import of_spending
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobKind, JobRow
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features.hover import about_job
from kernel_assistant_lsp.features.kernels import annotated, own_sources
from kernel_assistant_lsp.features.words import duration
from kernel_assistant_lsp.flows.arguments import class_of, job_of, text_of
from kernel_assistant_lsp.flows.installed import project_of
from kernel_assistant_lsp.shown import show_text
from kernel_assistant_lsp.text.documents import from_disk, uri_of
from kernel_assistant_lsp.text.snapshot import Snapshot

SOURCES = (".cu", ".cuh", ".cpp", ".h")


async def show_diff(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Shows the change that applying a job's kernels would make.

    Returns `{"before", "after", "title", "job", "kernels": name → text}`; `before` and `after` are the whole texts of
    the file.
    """
    snapshot, name = class_of(context, argument)

    def read() -> tuple[dict[str, Any], str]:
        row = job_of(context, argument)
        force = argument.get("force") is True
        store, project = context.history.store, project_of(context)
        applied, _ = apply_job(store, row, dry_run=True, force=force, project=project, text=snapshot.text)
        files = row.result.artifacts if row.result is not None else {}
        proposed = {
            "before": snapshot.text,
            "after": applied.text or snapshot.text,
            "title": f"{snapshot.path.name}: kernels of {name} ({figure(row.result)})",
            "job": row.id,
            "kernels": texts(files, SOURCES),
        }
        return proposed, applied.diff + _added(applied.package.name, texts(files, SOURCES))

    reply, diff = await in_thread(read)
    show_text(context, f"{snapshot.path.stem}-{name}.diff", diff)
    return reply


def _added(package: str, sources: dict[str, str]) -> str:
    """Return the kernels as a diff of new files, for a client that shows only one text."""
    return "".join(unified_diff("", text, f"{package}/{name}") for name, text in own_sources(sources).items())


def texts(artifacts: dict[str, str], suffixes: tuple[str, ...]) -> dict[str, str]:
    """Return a map from name to text of the artifacts whose names end with one of `suffixes`; deleted files are left
    out."""
    paths = {name: Path(path) for name, path in artifacts.items() if name.endswith(suffixes)}
    return {name: path.read_text(encoding="utf-8", errors="replace") for name, path in paths.items() if path.is_file()}


async def show_kernels(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return the sources of a job's kernels, which the client shows at the class that they replace.

    Return `{"job", "line", "kernels": name → text}`; `line` (from 0) is the line of the class statement.
    """
    snapshot, name = class_of(context, argument)

    def read() -> tuple[str, dict[str, str]]:
        row = job_of(context, argument)
        return row.id, kernels_of(row)

    job, kernels = await in_thread(read)
    suffix = Path(next(iter(kernels))).suffix
    show_text(context, f"{snapshot.path.stem}-{name}{suffix}", "\n".join(kernels.values()))
    return {"job": job, "line": _line(context, snapshot, name), "kernels": kernels}


def kernels_of(row: JobRow) -> dict[str, str]:
    """Return a map from name to annotated source of a job's kernels. Reads files. Raises UsageError if there are
    none."""
    files = row.result.artifacts if row.result is not None else {}
    sources = own_sources(texts(files, SOURCES))
    plan, graph = (Path(files.get(name, "")) for name in ("plan.json", "graph.json"))
    if not sources or not plan.is_file():
        raise UsageError(f"job {row.id} has left no kernels that are still here", "optimize the class again")
    op_graph = decode(graph.read_bytes(), OpGraph) if graph.is_file() else None
    return annotated(row, sources, decode(plan.read_bytes(), Plan), op_graph)


def _line(context: Context, snapshot: Snapshot, name: str) -> int:
    return next((one.line - 1 for one in context.classes(snapshot) if one.name == name), 0)


async def show_job(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return all facts about a job, for a report: its row and steps as `show --json` prints them, with its graph,
    sources and evaluation.
    """

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
    """Returns a report of a job in Markdown, for clients without a view of their own: result, candidates, and paths of
    the sources. `details` is the answer of `show_job`."""
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
    """Returns a message if the class was edited since the job ran; "" if it is the same, or if the file is gone."""
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
    """Returns the job that `argument` names, else the newest search for kernels of the class. Raises UsageError if
    there is none. Call it in a thread."""
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


async def show_assembly(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return PTX and SASS (for the CPU: assembly) of a job's kernels. They are made in the sandbox at the first
    request.

    Return `{"job", "files": name → text, "missing"}`; `missing` are lines that say why a text could not be made.
    """
    snapshot, _ = class_of(context, argument)
    settings = context.settings(snapshot.path)

    def made() -> dict[str, Any]:
        from kernel_assistant.session.assembly import assembly_of

        row = row_of(context, argument)
        assembly = assembly_of(row, settings)
        return {"job": row.id, "files": assembly.files, "missing": assembly.missing}

    return await in_thread(made)
