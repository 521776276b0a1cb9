"""Fetches the editor's settings for the workspace and for each of its folders."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_assistant.errors import UsageError
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.settings import SECTION, section_of
from kernel_assistant_lsp.text.documents import path_of


async def fetch_sections(context: Context) -> None:
    """Fetches the settings from the client, if it supports that, and stores them in `context.configuration`. Shows a
    warning for invalid values and for settings that a project's file must not contain."""
    if context.abilities.configuration:
        folders = context.folder_uris()
        items = [types.ConfigurationItem(section=SECTION)]
        items += [types.ConfigurationItem(section=SECTION, scope_uri=uri) for uri in folders]
        try:
            answers = await context.server.workspace_configuration_async(types.ConfigurationParams(items=items))
        except JsonRpcException:
            answers = []
        sections = [section_of(answer) for answer in answers]
        if sections:
            by_folder = {path_of(uri): section for uri, section in zip(folders, sections[1:], strict=False)}
            context.configuration.set(sections[0], by_folder)
    _complain(context)
    context.refresh()


def _complain(context: Context) -> None:
    messages = set()
    folders: list[Path | None] = [*context.folders()] or [None]
    for folder in folders:
        try:
            warnings = context.configuration.resolved(folder)[1]
        except UsageError as error:
            warnings = [f"{error.cause}: {error.next_step}"]
        messages.update(warnings)
    for warning in sorted(messages):
        context.tell(f"Kernel Assistant: {warning}", types.MessageType.Warning)
