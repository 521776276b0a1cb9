"""Requests about the workspace: its settings, files and folders, and its commands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lsprotocol import types
from lsprotocol.types import RenameFile, RenameFileOptions

from kernel_assistant.apply.package import MANIFEST, package_name
from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.dispatch import COMMANDS, run_command
from kernel_assistant_lsp.flows.sections import fetch_sections
from kernel_assistant_lsp.outside import changed_outside
from kernel_assistant_lsp.settings import section_of
from kernel_assistant_lsp.text.documents import is_file, path_of, uri_of

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


def renamed_packages(files: Iterable[tuple[str, str]]) -> list[RenameFile]:
    """Returns the renames of the packages of kernels that belong to renamed files. `files` are pairs of old and new
    URI. Reads the disk.

    A package is not renamed if its new path exists already. The lines that `apply` has written into a file stay the
    same, because they find the package by the path of the file.
    """
    renames = []
    for old, new in files:
        if is_file(old) and is_file(new):
            one, other = _package_of(path_of(old)), _package_of(path_of(new))
            if one != other and (one / MANIFEST).is_file() and not other.exists():
                options = RenameFileOptions(overwrite=False, ignore_if_exists=True)
                renames.append(RenameFile(old_uri=uri_of(one), new_uri=uri_of(other), options=options))
    return renames


def _package_of(path: Path) -> Path:
    return path.parent / package_name(path.stem)
