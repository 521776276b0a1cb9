"""Handlers of the protocol's requests and notifications, one file for each group. They call functions of the other
packages, which do the work without pygls."""

from __future__ import annotations

from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.requests import documents, jobs, language, lifecycle, workspace


def register_all(context: Context) -> None:
    for group in (lifecycle, documents, workspace, language, jobs):
        group.register(context)
