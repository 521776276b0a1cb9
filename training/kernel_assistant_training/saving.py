"""What every stage does when it writes weights: a full disk is named, and so is the checkpoint before."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from kernel_assistant.errors import InternalError, StoreError

#: No space, over one's quota, over a limit of the process.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Of torch's writer of archives, which says where it stopped and not why.
_TORCH = ("pytorchstreamwriter", "inline_container")


@contextmanager
def written(what: Path, known: str = "") -> Iterator[None]:
    """Turns a failure to write weights within the block into StoreError; `known` says where training can go on."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        let_go(error)
        cause = "; ".join(part for part in (f"{what} could not be written: {why(error)}", known) if part)
        step = "make room" if is_full(error) else f"see that {what.parent} is there and can be written to"
        raise StoreError(cause, f"{step}, and start it again") from error


def last_checkpoint(checkpoint: Path | None) -> str:
    """Where training can go on, for messages."""
    return f"the last checkpoint is {checkpoint}" if checkpoint else "there is no checkpoint yet"


@contextmanager
def naming(known: Callable[[], str]) -> Iterator[None]:
    """What fails in the block says what is `known` at that time: where training can go on."""
    try:
        yield
    except InternalError as error:
        raise type(error)(f"{error.cause}; {known()}", error.next_step) from error


def let_go(error: BaseException) -> None:
    """Of the files that the frames of a failure keep open: what was removed takes its room until they are closed."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__context__


def flush(path: Path) -> None:
    """A file, or all files below a folder, to the disk: before a name says that it is whole."""
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())


def why(error: BaseException) -> str:
    """In a line. Torch's writer says at which byte it stopped."""
    return "there is no room for it" if is_full(error) else first_line(error)


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def is_full(error: BaseException) -> bool:
    """Whether it says that there is no room. Writers of weights do not all keep the number of the error."""
    text = str(error).lower()
    said = ("no space left", "file too large", "quota exceeded", "os error 28", "os error 27", *_TORCH)
    return getattr(error, "errno", None) in FULL or any(one in text for one in said)
