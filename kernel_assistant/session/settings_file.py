"""Changes one setting in the user's settings file or in a project's pyproject.toml, and leaves the rest of the file as
it is."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from kernel_assistant.apply.files import write_atomically
from kernel_assistant.config import APP, check_value, line_of
from kernel_assistant.errors import UsageError

#: The table in a project's pyproject.toml.
PROJECT_TABLE = f"tool.{APP}"


def kept_form(name: str, value: str) -> object:
    """Returns the value of a setting as it is stored in a file: a duration such as `2m` as text, booleans, numbers and
    lists as such, a folder as its absolute path. Raises UsageError for an unknown name or a wrong value."""
    parsed = check_value(name, value)
    kept = parsed if isinstance(parsed, (bool, tuple)) or (isinstance(parsed, float) and _is_number(value)) else value
    return str(parsed) if isinstance(parsed, Path) else kept


def set_in_file(path: Path, name: str, value: object, table: str = "") -> None:
    """Writes `name = value` into the table `table` of a TOML file ("" is the top level); creates the file if necessary.
    Raises UsageError if the file cannot be read or is not valid TOML."""
    _edit(path, lambda text: with_line(text, _written(text, name, table), value, table))


def unset_in_file(path: Path, name: str, table: str = "") -> bool:
    """Removes the line that sets `name` from a TOML file. Returns False if there is no such line. Raises UsageError if
    the file cannot be read or is not valid TOML."""

    def change(text: str) -> str:
        written = _written(text, name, table)
        return without_line(text, written, table) if line_of(text, written, table) else text

    return _edit(path, change)


def _written(text: str, name: str, table: str) -> str:
    """Returns the key of the setting `name` as the file spells it, with hyphens or else with underscores."""
    hyphened = name.replace("_", "-")
    return hyphened if line_of(text, hyphened, table) else name


def _edit(path: Path, change: Callable[[str], str]) -> bool:
    """Replaces a file's text by `change(text)`. Returns whether they differ; if not, the file is not written. Raises
    UsageError unless the text is valid TOML before and after."""
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        tomllib.loads(text)
        after = change(text)
        tomllib.loads(after)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot edit {path}: {error}", "mend that file, or write the line by hand") from error
    if after == text:
        return False
    write_atomically(path, after.encode())
    return True


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def literal(value: object) -> str:
    """Returns the value of a setting in TOML syntax."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:g}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    return json.dumps(str(value), ensure_ascii=False)


def with_line(text: str, key: str, value: object, table: str = "") -> str:
    """Returns `text` with the line `key = value` in the table `table`: replaces the line that sets the key, or else
    adds one at the table's end."""
    line = f"{key} = {literal(value)}\n"
    lines = _lines(text)
    present = line_of(text, key, table)
    if present:
        lines[present - 1] = line
        return "".join(lines)
    if not table:
        first = next((index for index, one in enumerate(lines) if one.lstrip().startswith("[")), len(lines))
        lines.insert(first, line)
        return "".join(lines)
    header = _header(lines, table)
    if header < 0:
        gap = ["\n"] if lines and lines[-1].strip() else []
        return "".join([*lines, *gap, f"[{table}]\n", line])
    end = next((index for index in range(header + 1, len(lines)) if lines[index].lstrip().startswith("[")), len(lines))
    while not lines[end - 1].strip():
        end -= 1
    lines.insert(end, line)
    return "".join(lines)


def without_line(text: str, key: str, table: str = "") -> str:
    """Returns `text` without the line that sets `key` in the table `table`; unchanged if there is no such line."""
    present = line_of(text, key, table)
    lines = _lines(text)
    if present:
        del lines[present - 1]
    return "".join(lines)


def _lines(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


def _header(lines: list[str], table: str) -> int:
    wanted = re.compile(rf"\s*\[\s*{re.escape(table)}\s*\]")
    return next((index for index, line in enumerate(lines) if wanted.match(line)), -1)
