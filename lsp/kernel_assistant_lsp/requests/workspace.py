"""Requests about the workspace: its settings, files and folders, and its commands."""

from __future__ import annotations

from typing import Any

from lsprotocol import types

from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.dispatch import COMMANDS, run_command
from kernel_assistant_lsp.flows.sections import fetch_sections
from kernel_assistant_lsp.outside import changed_outside
from kernel_assistant_lsp.settings import section_of
from kernel_assistant_lsp.text.documents import path_of
from kernel_assistant_lsp.text.renames import renamed_packages

FILTER = types.FileOperationFilter(
    scheme="file", pattern=types.FileOperationPattern(glob="**/*.py", matches=types.FileOperationPatternKind.File)
)


def register(context: Context) -> None:
    # Fetches the settings again, because the workspace may have become trusted.
    @context.server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def did_change_configuration(params: types.DidChangeConfigurationParams) -> None:
        section = section_of(params.settings)
        if isinstance(section.get("trusted"), bool):
            context.trusted = section.pop("trusted")
        if section and not context.abilities.configuration:
            context.configuration.set(section)
        await fetch_sections(context)
        context.look_at_all()

    @context.server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def did_change_watched_files(params: types.DidChangeWatchedFilesParams) -> None:
        changed_outside(context, [path_of(change.uri) for change in params.changes])

    # Each folder has settings of its own.
    @context.server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    async def did_change_workspace_folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        await fetch_sections(context)

    # Renames or moves the kernels together with their file.
    @context.server.feature(types.WORKSPACE_WILL_RENAME_FILES, types.FileOperationRegistrationOptions(filters=[FILTER]))
    async def will_rename_files(params: types.RenameFilesParams) -> types.WorkspaceEdit | None:
        if not context.abilities.renames_files:
            return None
        names = [(one.old_uri, one.new_uri) for one in params.files]
        renames = await in_thread(lambda: renamed_packages(names))
        return types.WorkspaceEdit(document_changes=list(renames)) if renames else None

    for name in COMMANDS:
        _register(context, name)


def _register(context: Context, name: str) -> None:
    @context.server.command(name)
    async def execute(*arguments: Any) -> Any:
        return await run_command(context, name, arguments)
