"""Show what applying would change: the file before and after, and the kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_assistant.apply import unified_diff
from kernel_assistant.session.edits import apply_job
from kernel_assistant.session.reporting.class_state import figure
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.features.kernels import own_sources
from kernel_assistant_lsp.flows.arguments import class_of, job_of
from kernel_assistant_lsp.flows.installed import project_of
from kernel_assistant_lsp.shown import show_text

SOURCES = (".cu", ".cuh", ".cpp", ".h")


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return `{"before", "after", "title", "job", "kernels": name → text}`."""
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
    """Map name → text of the artifacts that still exist and end with one of `suffixes`."""
    paths = {name: Path(path) for name, path in artifacts.items() if name.endswith(suffixes)}
    return {name: path.read_text(encoding="utf-8", errors="replace") for name, path in paths.items() if path.is_file()}
