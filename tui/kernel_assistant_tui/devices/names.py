"""Who uses a GPU. The driver may number processes as another container does: then a number here means somebody else."""

from __future__ import annotations

import functools

import psutil

#: Parts of paths: every process with a CUDA context has loaded the library, or is the server of those that share one.
_DRIVER = (b"libcuda.", b"nvidia-cuda-mps")


def name_of(pid: int) -> str:
    """ "" for a process of another container, or one that is gone."""
    try:
        return _name(pid, psutil.Process(pid).create_time())
    except psutil.Error:
        return ""


@functools.lru_cache(maxsize=256)
def _name(pid: int, begun: float) -> str:
    """Looked at once: what a process has loaded is a long list."""
    return psutil.Process(pid).name() if _has_driver(pid) else ""


def _has_driver(pid: int) -> bool:
    """True as well for a process of another user, whose memory is not shown; but then the first one is the system's, or
    the number that a sandbox has outside."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as maps:
            text = maps.read()
    except OSError:
        return pid != 1
    return any(word in text for word in _DRIVER)
