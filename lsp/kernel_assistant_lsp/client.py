"""The capabilities of the client, read from its `initialize` request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsprotocol import types


@dataclass(frozen=True)
class ClientCapabilities:
    """The capabilities of the client, each False if the client lacks it. `job_events`: the client shows jobs itself (as
    our VS Code extension does) and wants the notifications `kernelAssistant/job` and `kernelAssistant/status`.
    `work_done`: it shows the protocol's progress displays. `versioned_edits`: its edits may name the document's
    version."""

    job_events: bool = False
    work_done: bool = False
    refreshes_lenses: bool = False
    refreshes_hints: bool = False
    resolves_edits: bool = False
    disabled_actions: bool = False
    applies_edits: bool = False
    versioned_edits: bool = False
    renames_files: bool = False
    configuration: bool = False
    watches_files: bool = False
    messages_with_choices: bool = True
    shows_documents: bool = False


def abilities(capabilities: types.ClientCapabilities, options: Mapping[str, Any]) -> ClientCapabilities:
    workspace, window = capabilities.workspace, capabilities.window
    document = capabilities.text_document
    action = document.code_action if document else None
    resolve = action.resolve_support if action else None
    edits = workspace.workspace_edit if workspace else None
    watched = workspace.did_change_watched_files if workspace else None
    lens = workspace.code_lens if workspace else None
    inlay = workspace.inlay_hint if workspace else None
    return ClientCapabilities(
        job_events=options.get("progress") == "client",
        work_done=bool(window and window.work_done_progress),
        refreshes_lenses=bool(lens and lens.refresh_support),
        refreshes_hints=bool(inlay and inlay.refresh_support),
        resolves_edits=bool(resolve and "edit" in resolve.properties),
        disabled_actions=bool(action and action.disabled_support),
        applies_edits=bool(workspace and workspace.apply_edit),
        versioned_edits=bool(edits and edits.document_changes),
        renames_files=bool(
            edits and edits.document_changes and types.ResourceOperationKind.Rename in (edits.resource_operations or ())
        ),
        configuration=bool(workspace and workspace.configuration),
        watches_files=bool(watched and watched.dynamic_registration),
        messages_with_choices=options.get("progress") != "client",
        shows_documents=bool(window and window.show_document and window.show_document.support),
    )
