"""The exceptions of this tool. The class of an exception says which side is at fault.

A bad *candidate* is data (an `Evaluation` with an outcome), never an exception. These exceptions are for bad input
(`UsageError`), for something missing on the machine (`MissingError`) and for our own breakage (`InternalError` and its
children). Each carries one line of cause and one line of next step.
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
    """Base class: `str(error)` is the one-line cause, `next_step` what to do about it."""

    exit_code = EXIT_INTERNAL

    def __init__(self, cause: str, next_step: str = "", *, detail: str = "") -> None:
        super().__init__(cause)
        self.next_step = next_step
        self.detail = detail

    @property
    def cause(self) -> str:
        return str(self.args[0])


class UsageError(KernelAssistantError):
    """The input is at fault: a file, an option, a module that cannot be built."""

    exit_code = EXIT_USAGE


class OutOfTime(UsageError):
    """The budget of a job is used up; what was found so far is kept."""


class MissingError(KernelAssistantError):
    """The machine lacks something: a compiler, torch, a GPU, a sandbox."""

    exit_code = EXIT_MISSING


class InternalError(KernelAssistantError):
    """A failure of this tool itself."""


class WorkerError(InternalError):
    """The worker process died, hung or broke the protocol."""


class DeviceError(InternalError):
    """The worker or its device is lost and cannot be recovered."""


class SandboxError(InternalError):
    """The sandbox could not be set up although it was found."""


class HostError(InternalError):
    """The session host could not be reached or died in the middle."""


class StoreError(InternalError):
    """The database or the event log could not be written (a full disk, say)."""


class Cancelled(KernelAssistantError):
    """The user stopped the job; what was found so far is kept."""

    exit_code = EXIT_CANCELLED


def kind_of(exit_code: int) -> type[KernelAssistantError]:
    """The class of errors that end with this exit code, as another process reported it."""
    return next((kind for kind in (UsageError, MissingError, Cancelled) if kind.exit_code == exit_code), InternalError)


@contextmanager
def noted() -> Iterator[None]:
    """Makes a traceback show the next step below the cause. Calls from Python code need this, because no command line
    prints the next step for them.
    """
    try:
        yield
    except KernelAssistantError as error:
        if error.next_step:
            error.add_note(error.next_step)
        raise


@contextmanager
def boundary(kind: type[InternalError], what: str) -> Iterator[None]:
    """Turn an operating-system failure inside the block into `kind`, named by `what`."""
    try:
        yield
    except KernelAssistantError:
        raise
    except (OSError, ValueError, EOFError) as error:
        raise kind(f"{what}: {error}", "see the log (kernel-assistant doctor says where)") from error
