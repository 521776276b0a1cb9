"""Return the sources of a job's kernels, to be shown at the class that they replace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant.records import OpGraph, Plan, decode
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobRow
from kernel_assistant_lsp.commands.diff import SOURCES, texts
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features.kernels import annotated, own_sources
from kernel_assistant_lsp.flows.arguments import class_of, job_of
from kernel_assistant_lsp.shown import show_text
from kernel_assistant_lsp.text.snapshot import Snapshot


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return `{"job", "line", "kernels": name → text}`: `line` (from 0) is that of the class statement."""
    snapshot, name = class_of(context, argument)

    def read() -> tuple[str, dict[str, str]]:
        row = job_of(context, argument)
        return row.id, kernels_of(row)

    job, kernels = await in_thread(read)
    suffix = Path(next(iter(kernels))).suffix
    show_text(context, f"{snapshot.path.stem}-{name}{suffix}", "\n".join(kernels.values()))
    return {"job": job, "line": _line(context, snapshot, name), "kernels": kernels}


def kernels_of(row: JobRow) -> dict[str, str]:
    """Map name → annotated source. Reads files. Raises UsageError if there are none."""
    files = row.result.artifacts if row.result is not None else {}
    sources = own_sources(texts(files, SOURCES))
    plan, graph = (Path(files.get(name, "")) for name in ("plan.json", "graph.json"))
    if not sources or not plan.is_file():
        raise UsageError(f"job {row.id} has left no kernels that are still here", "optimize the class again")
    op_graph = decode(graph.read_bytes(), OpGraph) if graph.is_file() else None
    return annotated(row, sources, decode(plan.read_bytes(), Plan), op_graph)


def _line(context: Context, snapshot: Snapshot, name: str) -> int:
    return next((one.line - 1 for one in context.classes(snapshot) if one.name == name), 0)
