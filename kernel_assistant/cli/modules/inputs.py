"""Chooses the module on which `optimize` works, and the source of its inputs: the file, or a scan."""

from __future__ import annotations

import shlex
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
    """Adds the argument FILE to a command, and the options `--scan` (which replaces FILE) and `--inputs`."""
    command = click.option(
        "--inputs",
        type=click.Choice(SOURCES),
        help="Inputs declared in the file, or recorded by a scan (default: declared ones where there are any).",
    )(command)
    command = click.option(
        "--scan",
        metavar="ID:CLASS",
        help="A class of a scan (its number or `last`), ID:CLASS#2 for one configuration; ID alone with --top.",
    )(command)
    return click.argument("file", metavar="FILE[:CLASS]", required=False, default="")(command)


def chosen_task(file: str, scan: str | None, inputs: str, settings: Settings) -> tuple[KernelTask, JobOptions]:
    """Task and options of the job. Raises UsageError for a class without inputs, after printing a draft of inputs to
    stderr, and for a file with several classes, after printing a command for each class.
    """
    if not file and not scan:
        raise click.UsageError("Missing argument 'FILE[:CLASS]' (or --scan ID:CLASS).", click.get_current_context())
    if file and scan:
        raise UsageError(f"{file} and --scan {scan} are two things", "name either FILE[:CLASS] or --scan ID:CLASS")
    if scan:
        return prepare_scanned(scan, settings, elsewhere=bool(settings.host))
    from kernel_assistant.source.build import SeveralClassesError
    from kernel_assistant.source.declared import NoInputsError

    try:
        return prepare(file, settings, inputs=inputs, elsewhere=bool(settings.host))
    except SeveralClassesError as error:
        _print_commands("optimize", file, error.names)
        raise
    except NoInputsError as error:
        if error.others:
            _print_commands("draft", file, (*error.others, error.class_name))
            raise
        from kernel_assistant.source.draft import draft

        drafted = draft(f"{error.path}:{error.class_name}")
        print(
            f"# A draft for {drafted.class_name}; mend it and put it above the class in {error.path}:\n",
            file=sys.stderr,
        )
        print(drafted.text, file=sys.stderr)
        raise


def _print_commands(command: str, file: str, names: tuple[str, ...]) -> None:
    print("\n".join(f"kernel-assistant {command} {shlex.quote(f'{file}:{name}')}" for name in names), file=sys.stderr)
