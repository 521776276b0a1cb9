"""Requests and notifications of the protocol. They call functions that know no server."""

from __future__ import annotations

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.requests import documents, jobs, language, lifecycle, workspace


def register_all(context: Context) -> None:
    for group in (lifecycle, documents, workspace, language, jobs):
        group.register(context)
