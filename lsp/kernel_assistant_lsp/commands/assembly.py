"""PTX and SASS, or assembly, of a job's kernels: made in the sandbox the first time that somebody looks."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.commands.arguments import class_of
from kernel_assistant_lsp.commands.show import row_of
from kernel_assistant_lsp.context import Context


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """`{"job", "files": name → text, "missing": lines that say why a text could not be made}`."""
    snapshot, _ = class_of(context, argument)
    settings = context.settings(snapshot.path)

    def made() -> dict[str, Any]:
        from kernel_assistant.session.assembly import assembly_of

        row = row_of(context, argument)
        found = assembly_of(row, settings)
        return {"job": row.id, "files": found.files, "missing": found.missing}

    return await in_thread(made)
