"""A project's own guidance for models: what to try, what to avoid. Guidance can only restrict a model further; it
cannot lift a restriction.

It is the file `kernel-assistant.md` beside the nearest pyproject.toml, else beside the module's file. A block of TOML
between two lines `+++` at its top may contain `without_tools` (names of tools) and `turns` (the most turns); the rest
is text for the prompt.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_assistant.config import nearest_pyproject
from kernel_assistant.errors import UsageError

FILE = "kernel-assistant.md"
MARK = "+++"
MOST = 8_000  # characters
#: Tools that are always allowed: without them a model can evaluate nothing and cannot end.
NEEDED = ("evaluate", "finish")


@dataclass(frozen=True)
class Guidance:
    text: str = ""
    without_tools: frozenset[str] = frozenset()
    turns: int | None = None

    def allowed(self, tools: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in tools if name not in self.without_tools)


def guidance_for(path: Path) -> Guidance:
    """Returns a project's guidance (advice for models in `kernel-assistant.md`) for the file `path`; it is empty if
    there is none. Raises UsageError if the file with the guidance is malformed."""
    pyproject = nearest_pyproject(path.parent)
    for folder in (path.parent if pyproject is None else pyproject.parent, path.parent):
        file = folder / FILE
        if file.is_file():
            return read_guidance(file)
    return Guidance()


def read_guidance(file: Path) -> Guidance:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}", "save it as UTF-8 text, or remove it") from error
    head, body = _split(text)
    try:
        table = tomllib.loads(head)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: the block between {MARK} is not TOML: {error}", "mend it") from error
    return Guidance(
        text=body.strip()[:MOST],
        without_tools=_names(table.pop("without_tools", []), file),
        turns=_turns(table.pop("turns", None), file, table),
    )


def _split(text: str) -> tuple[str, str]:
    lines = text.split("\n")
    if lines[0].strip() != MARK or MARK not in [line.strip() for line in lines[1:]]:
        return "", text
    end = next(number for number, line in enumerate(lines) if number and line.strip() == MARK)
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :])


def _names(value: Any, file: Path) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise UsageError(f"{file}: without_tools is not a list of names", 'write without_tools = ["shell"]')
    if set(value) & set(NEEDED):
        raise UsageError(f"{file}: {' and '.join(NEEDED)} cannot be taken away", "leave them out of without_tools")
    return frozenset(value)


def _turns(value: Any, file: Path, rest: dict[str, Any]) -> int | None:
    if rest:
        raise UsageError(f"{file}: {min(rest)!r} cannot be set here", "only without_tools and turns can")
    if value is not None and (type(value) is not int or value < 1):
        raise UsageError(f"{file}: turns is not a positive number", "write turns = 50")
    return value
