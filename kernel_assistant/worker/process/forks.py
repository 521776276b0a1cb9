"""Handles a fork of the process by the user's module. Without that, parent and child would both answer the same
requests: here the child ends, and the fork is reported.

Processes that a library starts (subprocess, multiprocessing) are not affected: they do not return to our code.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

_LIBRARY = os.path.dirname(os.__file__) + os.sep
_watched: set[int] = set()
_forks: list[str] = []


def watch(*files: int) -> None:
    """Notes forks of this process from now on; in a forked child, redirects the descriptors `files` to /dev/null."""
    _watched.add(os.getpid())
    os.register_at_fork(before=_note, after_in_child=lambda: _cut(files))


@contextlib.contextmanager
def ended_here() -> Iterator[None]:
    """Context manager for a block of the user's code: a child process that was forked in the block ends when it leaves
    the block."""
    try:
        yield
    finally:
        if _watched and os.getpid() not in _watched:
            os._exit(0)


def taken() -> str:
    """Returns and forgets file and line of the last fork, such as `model.py:12`; "" if there was none since the
    previous call."""
    location = _forks[-1] if _forks else ""
    _forks.clear()
    return location


def _note() -> None:
    caller = sys._getframe(1)
    if os.getpid() in _watched and not caller.f_code.co_filename.startswith(_LIBRARY):
        _forks.append(f"{os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno}")


def _cut(files: tuple[int, ...]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for file in files:
        os.dup2(nowhere, file)
    os.close(nowhere)
