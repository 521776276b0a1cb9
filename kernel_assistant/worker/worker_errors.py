"""What is wrong with the user's module, as the front end says it: one line of cause, one of what to do."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator

#: Kinds of `open_task`, as in docs/architecture.md.
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
    """`message` and `next_step` are one line each; `detail` is a traceback or empty."""

    def __init__(self, kind: str, message: str, next_step: str, detail: str = "") -> None:
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}")
        super().__init__(message)
        self.kind = kind
        self.message = " ".join(message.split())
        self.next_step = " ".join(next_step.split())
        self.detail = detail


@contextlib.contextmanager
def user_code(kind: str, what: str, next_step: str, path: str) -> Iterator[None]:
    """Run the user's code with `user_streams`; any exception of its own becomes a TaskError."""
    with user_streams():
        try:
            yield
        except TaskError:
            raise
        except (Exception, SystemExit) as error:
            raise as_task_error(error, kind, what, next_step, path) from error


@contextlib.contextmanager
def user_streams() -> Iterator[None]:
    """Prints go to stderr and stdin is empty: the worker's own stdout and stdin carry the protocol."""
    with open(os.devnull) as nothing, contextlib.redirect_stdout(sys.stderr):
        stdin, sys.stdin = sys.stdin, nothing
        try:
            yield
        finally:
            sys.stdin = stdin


def as_task_error(error: BaseException, kind: str, what: str, next_step: str, path: str) -> TaskError:
    """`error` of the user's code in the file `path`, told in one line with the last line of that file it passed."""
    detail = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if is_out_of_memory(error):
        return TaskError("out_of_memory", f"{what} ran out of memory{_where(error, path)}", SMALLER, detail)
    if isinstance(error, ModuleNotFoundError) and error.name:
        next_step = f"install {error.name} where torch is ({sys.executable}), or mend the import"
    return TaskError(kind, f"{what} failed{_where(error, path)}: {first_line(error)}", next_step, detail)


SMALLER = "use smaller shapes in the declared inputs, or a smaller module"


def is_out_of_memory(error: BaseException) -> bool:
    """True for `torch.OutOfMemoryError` too (by name: this file must load where torch is missing), and for the plain
    RuntimeError that torch raises when the CPU allocator fails."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(part in str(error).lower() for part in _OUT_OF_MEMORY)


def first_line(error: BaseException) -> str:
    """`ValueError: bad size`, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _where(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {os.path.basename(error.filename)}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f" at {os.path.basename(path)}:{lines[-1]}" if lines else ""
