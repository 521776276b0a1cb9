"""What applying would change: the file before and after, and the kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_assistant.session.class_state import figure
from kernel_assistant.session.edits import apply_job
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.commands.arguments import job_of, own_class
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.shown import show_text

SOURCES = (".cu", ".cuh", ".cpp", ".h")


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`{"before", "after", "title", "job", "kernels": name → text}`."""
    snapshot, name = own_class(context, argument)

    def look() -> tuple[dict[str, Any], str]:
        row = job_of(context, argument)
        force = argument.get("force") is True
        applied, _ = apply_job(context.history.store, row, dry_run=True, force=force, text=snapshot.text)
        files = row.result.artifacts if row.result is not None else {}
        proposed = {
            "before": snapshot.text,
            "after": applied.text or snapshot.text,
            "title": f"{snapshot.path.name}: kernels of {name} ({figure(row.result)})",
            "job": row.id,
            "kernels": texts(files, SOURCES),
        }
        return proposed, applied.diff

    found, diff = await in_thread(look)
    show_text(context, f"{snapshot.path.stem}-{name}.diff", diff)
    return found


def texts(artifacts: dict[str, str], suffixes: tuple[str, ...]) -> dict[str, str]:
    """Name → text of those artifacts that are still there."""
    found = {name: Path(path) for name, path in artifacts.items() if name.endswith(suffixes)}
    return {name: path.read_text(encoding="utf-8", errors="replace") for name, path in found.items() if path.is_file()}
