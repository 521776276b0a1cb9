"""Converts errors of the user's module to the form in which the front end shows them: one line with the cause, one with
the next step."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any, TextIO, cast

from . import forks, stages

#: Kinds of errors that `open_task` raises, as in docs/architecture.md.
KINDS = frozenset(
    {
        "import_failed",
        "no_class",
        "no_inputs",
        "cannot_build",
        "forward_failed",
        "nondeterministic",
        "out_of_memory",
        "mutates_inputs",
        "unsupported_output",
        "unsupported_input",
        "torch_missing",
        "torch_too_old",
        "no_gpu",
    }
)
_LONGEST = 300
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


class TaskError(Exception):
    """An error of the user's module. `kind` is one of `KINDS`; `message` (the cause) and `next_step` (advice) are one
    line each; `detail` is a traceback or empty."""

    def __init__(self, kind: str, message: str, next_step: str, detail: str = "") -> None:
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}")
        super().__init__(message)
        self.kind = kind
        self.message = " ".join(message.split())
        self.next_step = " ".join(next_step.split())
        self.detail = detail


class BrokenDevice(Exception):
    """The module's own kernels broke this process's CUDA context: nothing more runs on the device here. `inputs` names
    the inputs with which that happened, "" if they are not known.
    """

    def __init__(self, message: str, inputs: str = "") -> None:
        super().__init__(message)
        self.message, self.inputs = " ".join(message.split()), inputs


def broken_device(error: BaseException | None) -> BrokenDevice | None:
    """Returns the BrokenDevice among `error` and the exceptions that were being handled when it was raised, else None.
    A BrokenDevice can be hidden behind another error: while it propagates, device locks wait for the device, and that
    fails as well."""
    while error is not None and not isinstance(error, BrokenDevice):
        error = error.__context__
    return error


@contextlib.contextmanager
def with_inputs(name: str) -> Iterator[None]:
    """Context manager: a BrokenDevice from the block gets the name of the inputs, `name`. Other errors of a lost device
    become a BrokenDevice too, because a device reports errors late, also outside of the user's code."""
    try:
        yield
    except BrokenDevice as lost:
        lost.inputs = lost.inputs or name
        raise
    except Exception as error:
        if not is_device_lost(error):
            raise
        raise BrokenDevice(f"forward failed: {first_line(error)}", name) from error


@contextlib.contextmanager
def user_code(kind: str, what: str, next_step: str, path: str) -> Iterator[None]:
    """Context manager for the user's code, with `user_streams`. An exception that the code raises becomes a TaskError
    of the kind `kind`, whose message says that `what` failed at a line of `path`, with the advice `next_step`; or
    BrokenDevice if the CUDA context is lost. A fork of the process raises TaskError too."""
    stages.begin(stages.OF_KIND.get(kind, ""))
    with user_streams(), forks.ended_here():
        try:
            yield
        except (TaskError, BrokenDevice):
            raise
        except (Exception, SystemExit) as error:
            if is_device_lost(error):
                raise BrokenDevice(f"{what} failed{_where(error, path)}: {first_line(error)}") from error
            raise as_task_error(error, kind, what, next_step, path) from error
    location = forks.taken()
    if location:
        raise TaskError(kind, f"{what} forks the process at {location}", "start other processes outside of the module")


@contextlib.contextmanager
def user_streams() -> Iterator[None]:
    """Context manager: within the block, prints go to stderr and stdin is empty, because the worker's own stdout and
    stdin carry the protocol.
    """
    with open(os.devnull) as nothing, contextlib.redirect_stdout(cast("TextIO", _PrintCounter(sys.stderr))):
        stdin, sys.stdin = sys.stdin, nothing
        try:
            yield
        finally:
            sys.stdin = stdin


class _PrintCounter:
    """A stream for prints that counts how often something was printed to it."""

    count = 0

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        _PrintCounter.count += 1
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def heard_prints() -> Iterator[list[int]]:
    """Context manager that yields a list. After the block it is still empty if the user's code printed nothing in the
    block; otherwise it has one element."""
    heard, before = list[int](), _PrintCounter.count
    yield heard
    if _PrintCounter.count > before:
        heard.append(_PrintCounter.count - before)


def as_task_error(error: BaseException, kind: str, what: str, next_step: str, path: str) -> TaskError:
    """Returns the TaskError for an `error` of the user's code; the arguments are those of `user_code`. Its message is
    one line, with the number of the last line of the file `path` in the traceback."""
    detail = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if is_out_of_memory(error):
        return TaskError("out_of_memory", f"{what} ran out of memory{_where(error, path)}", SMALLER, detail)
    if isinstance(error, ModuleNotFoundError) and error.name:
        next_step = f"install {error.name} where torch is ({sys.executable}), or mend the import"
    return TaskError(kind, f"{what} failed{_where(error, path)}: {first_line(error)}", next_step, detail)


SMALLER = "use smaller shapes in the declared inputs, or a smaller module"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: MemoryError, `torch.OutOfMemoryError` (by name: this file must load where torch is
    missing), or the plain RuntimeError that torch raises when the CPU allocator fails."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(part in str(error).lower() for part in _OUT_OF_MEMORY)


def is_device_lost(error: BaseException) -> bool:
    """Whether a kernel ended in a way that breaks the CUDA context: a device-side assert, an illegal address."""
    if is_out_of_memory(error):
        return False
    return type(error).__name__ in ("AcceleratorError", "CudaError") or "CUDA error" in str(error)


def first_line(error: BaseException) -> str:
    """Returns class and message of an error in one line, such as `ValueError: bad size`, cut after 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _where(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {os.path.basename(error.filename)}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f" at {os.path.basename(path)}:{lines[-1]}" if lines else ""
