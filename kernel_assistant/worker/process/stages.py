"""Reports which stage of the user's class runs now (such as import or forward), because it may hang or end the
process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

#: The stage of each kind of error in the user's code.
OF_KIND = {"import_failed": "import", "cannot_build": "init", "no_inputs": "inputs", "forward_failed": "forward"}

_tell: list[Callable[[str], None]] = []


@contextlib.contextmanager
def told_to(tell: Callable[[str], None]) -> Iterator[None]:
    """Context manager: within the block, `tell` is called with each stage that begins. If the same stage begins several
    times in a row, as when forward is timed, `tell` is called only once."""
    last = [""]

    def tell_changes(stage: str) -> None:
        if stage != last[0]:
            last[0] = stage
            tell(stage)

    _tell.append(tell_changes)
    try:
        yield
    finally:
        _tell.pop()


def begin(stage: str) -> None:
    """Reports that a stage begins: one of "import", "init", "inputs", "forward", "trace"."""
    for tell in _tell:
        tell(stage)
