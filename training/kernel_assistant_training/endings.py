"""Runs a stage's command and returns its exit code. For an expected error it prints two lines: the cause, and what to
do (docs/training_failures.md)."""

from __future__ import annotations

import sys
from collections.abc import Callable

from kernel_assistant.errors import EXIT_CANCELLED, EXIT_INTERNAL, EXIT_OK, KernelAssistantError
from kernel_assistant_training.interrupts import Interrupted, SignalHandling, raised
from kernel_assistant_training.saving import is_full


def ended(name: str, stage: Callable[[], None]) -> int:
    """Calls `stage` and returns the exit code. Prints the cause of an expected error (also a full disk or Ctrl+C) and
    what to do to stderr; `name` is the stage's name in messages. Raises unknown exceptions, which are bugs."""
    try:
        with SignalHandling(raised):
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
