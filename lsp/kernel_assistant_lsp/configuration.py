"""The settings for a file: the editor's settings for its folder override the settings in the project's and user's
files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_assistant.config import Settings, resolve
from kernel_assistant_lsp.settings import flags_of, switched_on


class Configuration:
    """Resolves the settings for a file. The files with settings are read at each call, so that a change applies from
    the next request on."""

    def __init__(self) -> None:
        self._general: dict[str, Any] = {}
        self._folders: dict[Path, dict[str, Any]] = {}

    def set(self, general: Mapping[str, Any], folders: Mapping[Path, Mapping[str, Any]] | None = None) -> None:
        self._general = dict(general)
        self._folders = {path: dict(section) for path, section in (folders or {}).items()}

    def section(self, path: Path | None) -> dict[str, Any]:
        """Return the editor's settings of the innermost folder that contains `path`, else its general settings."""
        holding = [folder for folder in self._folders if path is not None and path.is_relative_to(folder)]
        return self._folders[max(holding, key=lambda folder: len(folder.parts))] if holding else self._general

    def is_on(self, path: Path, switch: str) -> bool:
        return switched_on(self.section(path), switch)

    def settings(self, path: Path | None) -> Settings:
        """Return the settings for `path`. Raises UsageError if a value in a file or in the editor is invalid."""
        return self.resolved(path)[0]

    def resolved(self, path: Path | None) -> tuple[Settings, list[str]]:
        """Return the settings for `path`, and a warning for each setting that a project must not make."""
        return resolve(path, flags_of(self.section(path)))
