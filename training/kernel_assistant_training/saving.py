"""Handles errors when a stage writes weights: the message says whether the disk is full, and names the previous
checkpoint.
"""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from kernel_assistant.errors import InternalError, StoreError

#: Error numbers for a full disk, an exceeded quota, and a file size limit of the process.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Messages of torch's archive writer, which does not give the reason of a failure.
_TORCH = ("pytorchstreamwriter", "inline_container")


@contextmanager
def written(what: Path, known: str = "") -> Iterator[None]:
    """A context manager that turns an error while weights are written to `what` into StoreError. `known` is a text that
    names the checkpoint from which training can resume."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        let_go(error)
        cause = "; ".join(part for part in (f"{what} could not be written: {why(error)}", known) if part)
        step = "make room" if is_full(error) else f"see that {what.parent} is there and can be written to"
        raise StoreError(cause, f"{step}, and start it again") from error


def last_checkpoint(checkpoint: Path | None) -> str:
    """Returns a text for error messages that names the checkpoint from which to resume; None: there is none."""
    return f"the last checkpoint is {checkpoint}" if checkpoint else "there is no checkpoint yet"


@contextmanager
def naming(known: Callable[[], str]) -> Iterator[None]:
    """A context manager that appends `known()`, which names the checkpoint to resume from, to the message of an
    InternalError."""
    try:
        yield
    except InternalError as error:
        raise type(error)(f"{error.cause}; {known()}", error.next_step) from error


def let_go(error: BaseException) -> None:
    """Closes files that the stack frames of an error keep open, because deleted files take disk space until they are
    closed."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__context__


def flush(path: Path) -> None:
    """Flushes a file, or all files below a folder, to disk. Call it before a file or folder is renamed to its final
    name."""
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())


def why(error: BaseException) -> str:
    """Returns the cause of the error in one line. A full disk is named as such, because torch's writer does not mention
    it."""
    return "there is no room for it" if is_full(error) else first_line(error)


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def is_full(error: BaseException) -> bool:
    """Whether the error means that the disk is full. The message is read too, because not all writers of weights keep
    the error number."""
    text = str(error).lower()
    messages = ("no space left", "file too large", "quota exceeded", "os error 28", "os error 27", *_TORCH)
    return getattr(error, "errno", None) in FULL or any(one in text for one in messages)
