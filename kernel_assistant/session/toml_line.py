"""Sets and removes one line of a TOML file without changing anything else, including comments. Pure."""

from __future__ import annotations

import json
import re

from kernel_assistant.config import line_of


def literal(value: object) -> str:
    """Returns the value of a setting as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:g}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    return json.dumps(str(value), ensure_ascii=False)


def with_line(text: str, key: str, value: object, table: str = "") -> str:
    """Returns `text` with `key = value` in `table`, in the line that sets it, or else at the table's end."""
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
    """Returns `text` without the line that sets `key`, unchanged if there is none."""
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
