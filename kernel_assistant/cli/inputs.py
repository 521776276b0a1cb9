"""Which module `optimize` works on and where its inputs come from: the file, or a scan."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kernel_assistant.config import SOURCES, Settings
from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask
from kernel_assistant.session.prepare import prepare, prepare_scanned
from kernel_assistant.store import JobOptions

F = TypeVar("F", bound=Callable[..., Any])


def input_options(command: F) -> F:
    """FILE, and what may stand for it."""
    command = click.option(
        "--inputs",
        type=click.Choice(SOURCES),
        help="Inputs declared in the file, or recorded by a scan (default: declared ones where there are any).",
    )(command)
    command = click.option("--scan", metavar="ID:CLASS", help="A class of a scan (its number or `last`).")(command)
    return click.argument("file", metavar="FILE[:CLASS]", required=False, default="")(command)


def chosen_task(file: str, scan: str | None, inputs: str, settings: Settings) -> tuple[KernelTask, JobOptions]:
    """Task and options. A class without inputs is refused with a draft of them on stderr."""
    if not file and not scan:
        raise click.UsageError("Missing argument 'FILE[:CLASS]' (or --scan ID:CLASS).", click.get_current_context())
    if file and scan:
        raise UsageError(f"{file} and --scan {scan} are two things", "name either FILE[:CLASS] or --scan ID:CLASS")
    if scan:
        return prepare_scanned(scan, settings, elsewhere=bool(settings.host))
    from kernel_assistant.source.declared import NoInputsError

    try:
        return prepare(file, settings, inputs=inputs, elsewhere=bool(settings.host))
    except NoInputsError as error:
        from kernel_assistant.source.draft import draft

        drafted = draft(f"{error.path}:{error.class_name}")
        print(f"# A draft for {drafted.class_name}; mend it and put it into {error.path}:\n", file=sys.stderr)
        print(drafted.text, file=sys.stderr)
        raise
