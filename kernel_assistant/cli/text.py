"""Formats words and numbers for output, and prints errors and warnings."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click


def colourful(stream: TextIO) -> bool:
    """Whether to print in colour: only to a terminal, and not if the user has turned colours off (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, **style: bool | str) -> str:
    """`text` with the escape codes of a style for stdout; unchanged if colour is not wanted."""
    return click.style(text, **style) if colourful(sys.stdout) else text  # type: ignore[arg-type]


def say_error(cause: str, next_step: str) -> None:
    """Prints an error to stderr in two lines: the cause, and the next step if there is one."""
    print(f"error: {_one_line(cause)}", file=sys.stderr)
    if next_step:
        print(f"next: {_one_line(next_step)}", file=sys.stderr)


def say_warning(message: str) -> None:
    print(f"warning: {_one_line(message)}", file=sys.stderr)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """A table of left-aligned columns, as lines of text."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    return [line.rstrip() for line in lines]


def _one_line(text: str) -> str:
    return " ".join(text.split())
