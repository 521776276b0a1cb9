"""Declared inputs that are drafted for a class, and run before they are offered."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.text.snapshot import Snapshot


async def drafted(context: Context, snapshot: Snapshot, name: str) -> dict[str, Any]:
    """Return a draft as `{"text", "origin", "problem"}`. Takes as long as importing the file does."""
    from kernel_assistant.session.drafting import draft_that_runs

    settings = context.settings(snapshot.path)
    tried = await in_thread(lambda: draft_that_runs(f"{snapshot.path}:{name}", settings, snapshot.text))
    return {"text": tried.draft.text, "origin": tried.draft.origin, "problem": tried.problem}
