"""The exceptions of this tool. The class of an exception says where the fault lies.

A bad *candidate* is data (an `Evaluation` with an outcome), never an exception. These exceptions are for bad input
(`UsageError`), for something missing on the machine (`MissingError`) and for failures of this tool itself
(`InternalError` and its subclasses). Each has a cause and a next step, in one line each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXIT_OK = 0
EXIT_GATE = 1
EXIT_USAGE = 2
EXIT_MISSING = 3
EXIT_INTERNAL = 4
EXIT_CANCELLED = 130


class KernelAssistantError(Exception):
    """Base class of this tool's errors. `str(error)` is the cause in one line; `next_step` tells the user what to do;
    `detail` is further text such as a log, or ""."""

    exit_code = EXIT_INTERNAL

    def __init__(self, cause: str, next_step: str = "", *, detail: str = "") -> None:
        super().__init__(cause)
        self.next_step = next_step
        self.detail = detail

    @property
    def cause(self) -> str:
        return str(self.args[0])


class UsageError(KernelAssistantError):
    """The input has an error: a file, an option, a module that cannot be built."""

    exit_code = EXIT_USAGE


class OutOfTime(UsageError):
    """The budget of a job is used up. Its best candidate so far is kept."""


class MissingError(KernelAssistantError):
    """The machine lacks something: a compiler, torch, a GPU, a sandbox."""

    exit_code = EXIT_MISSING


class InternalError(KernelAssistantError):
    """A failure of this tool itself, not of the user's input or machine."""


class WorkerError(InternalError):
    """The worker process died, hung or broke the protocol."""


class DeviceError(InternalError):
    """The worker or its device has failed and cannot be recovered."""


class SandboxError(InternalError):
    """The sandbox could not be set up, although a sandbox program was found."""


class HostError(InternalError):
    """The session host could not be reached, or died during a request."""


class StoreError(InternalError):
    """The database or the event log could not be written, for example because the disk is full."""


class Cancelled(KernelAssistantError):
    """The user stopped the job. Its best candidate so far is kept."""

    exit_code = EXIT_CANCELLED


def kind_of(exit_code: int) -> type[KernelAssistantError]:
    """Returns the class of errors with this exit code (InternalError if there is none), for an error that another
    process reported."""
    return next((kind for kind in (UsageError, MissingError, Cancelled) if kind.exit_code == exit_code), InternalError)


@contextmanager
def noted() -> Iterator[None]:
    """Adds the next step to errors raised in this context, so that a traceback shows it below the cause. Calls from
    Python code need this, because no command line prints the next step for them.
    """
    try:
        yield
    except KernelAssistantError as error:
        if error.next_step:
            error.add_note(error.next_step)
        raise


@contextmanager
def boundary(kind: type[InternalError], what: str) -> Iterator[None]:
    """Raises `kind` instead of an OSError, ValueError or EOFError in the `with` block; the cause begins with `what`.
    The tool's own errors pass unchanged."""
    try:
        yield
    except KernelAssistantError:
        raise
    except (OSError, ValueError, EOFError) as error:
        raise kind(f"{what}: {error}", "see the log (kernel-assistant doctor says where)") from error
