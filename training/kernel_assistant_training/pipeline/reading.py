"""Stages' words as the stages themselves read them, without running anything.

`python -m kernel_assistant_training.pipeline.reading`: a JSON list of {"parser", "words"} on stdin, on stdout for each
the options with their defaults, or what is wrong. A process of its own, because stages load torch.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from importlib import import_module
from typing import Any

import click
import msgspec

from kernel_assistant.errors import InternalError
from kernel_assistant.records.codec import Record, from_builtins


class Asked(Record, frozen=True, kw_only=True):
    """`parser` is "module:name", a click command or a function that gives an argparse parser."""

    parser: str
    words: list[str]


class Read(Record, frozen=True, kw_only=True):
    """`error` is one line, "" where `options` are all of it."""

    options: dict[str, Any] = {}
    error: str = ""


def read(asked: Sequence[Asked]) -> list[Read]:
    """In the same order, by a process. Raises InternalError where it ends without an answer."""
    done = subprocess.run(
        [sys.executable, "-m", "kernel_assistant_training.pipeline.reading"],
        input=msgspec.json.encode(list(asked)),
        capture_output=True,
        env={**os.environ, "COLUMNS": "400"},
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise InternalError(f"stages' options could not be read: {said[-1] if said else 'no word'}", "report this")
    return [from_builtins(one, Read) for one in json.loads(done.stdout)]


def read_here(asked: Asked) -> Read:
    """In this process."""
    module, _, name = asked.parser.partition(":")
    found = getattr(import_module(module), name)
    if isinstance(found, click.Command):
        try:
            with found.make_context(found.name, list(asked.words)) as context:
                return Read(options=_plain(context.params))
        except click.ClickException as error:
            return Read(error=error.format_message())
    heard = io.StringIO()
    parser: argparse.ArgumentParser = found()
    try:
        with redirect_stderr(heard):
            options = vars(parser.parse_args(asked.words))
    except SystemExit:
        return Read(error=heard.getvalue().strip().rpartition("error: ")[2] or "not understood")
    return Read(options=_plain(options))


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain_value(one) for name, one in options.items()}


def _plain_value(value: object) -> object:
    return (
        [_plain_value(one) for one in value]
        if isinstance(value, (list, tuple))
        else value
        if _is_plain(value)
        else str(value)
    )


def _is_plain(value: object) -> bool:
    # JSON has no infinity.
    finite = not isinstance(value, float) or abs(value) != float("inf")
    return value is None or (isinstance(value, (bool, int, float, str)) and finite)


if __name__ == "__main__":
    questions = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Asked])
    sys.stdout.write(json.dumps([msgspec.to_builtins(read_here(one)) for one in questions]))
