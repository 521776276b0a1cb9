"""PTX and SASS, or assembly, of a job's kernels: made in the sandbox at the first request."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.commands.show import row_of
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import class_of


async def run(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Return `{"job", "files": name → text, "missing": lines that say why a text could not be made}`."""
    snapshot, _ = class_of(context, argument)
    settings = context.settings(snapshot.path)

    def made() -> dict[str, Any]:
        from kernel_assistant.session.assembly import assembly_of

        row = row_of(context, argument)
        assembly = assembly_of(row, settings)
        return {"job": row.id, "files": assembly.files, "missing": assembly.missing}

    return await in_thread(made)
