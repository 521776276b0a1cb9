"""Requests and notifications of the protocol: one file each, which calls functions that know no server."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from kernel_assistant_lsp.context import Context

#: Files of this folder, in the order in which they are registered.
REQUESTS = (
    "initialize",
    "initialized",
    "shutdown",
    "did_open",
    "did_change",
    "did_save",
    "did_close",
    "did_change_configuration",
    "did_change_watched_files",
    "did_change_workspace_folders",
    "will_rename_files",
    "code_lens",
    "code_action",
    "code_action_resolve",
    "hover",
    "inlay_hint",
    "inline_completion",
    "execute_command",
    "work_done_cancel",
    "watch_status",
)


class _Request(Protocol):
    def register(self, context: Context) -> None: ...


def register_all(context: Context) -> None:
    for name in REQUESTS:
        cast("_Request", import_module(f"{__name__}.{name}")).register(context)
