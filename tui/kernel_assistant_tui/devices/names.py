"""Names of the processes on a GPU. The driver may report process ids of another container, which mean others here."""

from __future__ import annotations

import functools

import psutil

#: Parts of paths: a process with a CUDA context has loaded the library, or is the MPS server of those that share one.
_DRIVER = (b"libcuda.", b"nvidia-cuda-mps")


def name_of(pid: int) -> str:
    """Return the name of a process, "" if it belongs to another container or has ended."""
    try:
        return _name(pid, psutil.Process(pid).create_time())
    except psutil.Error:
        return ""


@functools.lru_cache(maxsize=256)
def _name(pid: int, begun: float) -> str:
    """The name of the process `pid` that began at `begun`. Cached, since the list of loaded files of a process is
    long.
    """
    return psutil.Process(pid).name() if _has_driver(pid) else ""


def _has_driver(pid: int) -> bool:
    """Return whether a process has loaded the driver. True also for processes of other users, whose files are hidden,
    except for process 1, which is the init process or the outer id of a sandbox."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as maps:
            text = maps.read()
    except OSError:
        return pid != 1
    return any(word in text for word in _DRIVER)
