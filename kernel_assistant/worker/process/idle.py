"""Frees memory of a worker that has had no request for a while, since it may wait for minutes.

This is not done after each task, because the next task would fill the same caches again. Standard library only at
import.
"""

from __future__ import annotations

import ctypes
import gc
import linecache
import select
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

SECONDS = 20.0
#: Module → the function that empties its caches; called if the module is loaded.
_CACHES = {
    "torch.compiler": "reset",
    "sympy.core.cache": "clear_cache",
    "torch._inductor.utils": "clear_inductor_caches",
    "torch._inductor.async_compile": "shutdown_compile_workers",
}


def wait(source: BinaryIO, seconds: float = SECONDS) -> None:
    """Waits until there is something to read from `source`. If nothing comes for `seconds`, frees memory and
    returns."""
    if not select.select([source], [], [], seconds)[0]:
        give_back()


def give_back() -> None:
    """Frees the caches of compilers, collects garbage, and returns unused memory of the C allocator to the system."""
    for name, function in _CACHES.items():
        empty: Callable[[], Any] | None = getattr(sys.modules.get(name), function, None)
        if empty is not None:
            empty()
    linecache.clearcache()
    # Objects that were frozen after the first task may be garbage by now.
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _trim()


def _trim() -> None:
    """Returns free memory of the C allocator to the system; only glibc offers that."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
