"""Switches applied kernels off in this process for a block, so that the user's original code runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: Names of the modules of applied packages (`apply/template/load.py.txt`).
_PREFIX, _SWITCH = "_kernels_", ".applied.install"


@contextmanager
def originals() -> Iterator[None]:
    """Context manager: within the block, the kernels of all applied packages that are loaded in this process are
    switched off; afterwards they are on."""
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
