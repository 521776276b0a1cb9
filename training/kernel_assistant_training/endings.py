"""How a stage's command ends: exit codes with a line of cause and a line of what to do (docs/training_failures.md)."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from kernel_assistant.errors import EXIT_CANCELLED, EXIT_INTERNAL, EXIT_OK, KernelAssistantError, UsageError
from kernel_assistant_training.interrupts import Answering, Interrupted, raised
from kernel_assistant_training.saving import is_full


def ended(name: str, stage: Callable[[], None]) -> int:
    """Runs it; the exit code. What it does not know is a bug, and raised."""
    try:
        with Answering(raised):
            stage()
    except KernelAssistantError as error:
        sys.stderr.write("".join(f"{line}\n" for line in (error.cause, error.next_step) if line))
        return error.exit_code
    except OSError as error:
        if not is_full(error):
            raise
        sys.stderr.write(f"{name}: {error}\nmake room, and start it again: it goes on where it was\n")
        return EXIT_INTERNAL
    except KeyboardInterrupt as error:
        sys.stderr.write(f"{name} was ended by {str(error) or 'SIGINT'}: the same command goes on where it was\n")
        return error.exit_code if isinstance(error, Interrupted) else EXIT_CANCELLED
    return EXIT_OK


def invoke(command: click.Command, words: list[str]) -> None:
    """A command of click's as a stage. Raises UsageError for words that it does not know, and what interrupts it."""
    try:
        command.main(words, prog_name=command.name, standalone_mode=False)
    except click.ClickException as error:
        raise UsageError(error.format_message(), f"see {command.name} --help") from error
    except click.Abort as error:
        raise error.__cause__ or KeyboardInterrupt from error
