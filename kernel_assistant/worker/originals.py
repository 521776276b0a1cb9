"""Applied kernels switched off for a while, in this process: what is in their place runs as the user wrote it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: As the packages beside users' files name themselves (`apply/template/load.py.txt`).
_PREFIX, _SWITCH = "_kernels_", ".applied.install"


@contextmanager
def originals() -> Iterator[None]:
    """Of every package that is loaded, whichever class it serves."""
    loaded = [
        module for name, module in list(sys.modules.items()) if name.startswith(_PREFIX) and name.endswith(_SWITCH)
    ]
    for package in loaded:
        package.set_enabled(False)
    try:
        yield
    finally:
        for package in loaded:
            package.set_enabled(True)
