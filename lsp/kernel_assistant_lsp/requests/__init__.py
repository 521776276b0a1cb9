"""Requests and notifications of the protocol. The functions that they call do not use the server."""

from __future__ import annotations

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.requests import documents, jobs, language, lifecycle, workspace


def register_all(context: Context) -> None:
    for group in (lifecycle, documents, workspace, language, jobs):
        group.register(context)
