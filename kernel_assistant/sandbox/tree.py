"""Finds the descendants of a process, counts their threads, adds up their memory, and kills them."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

DYING = 2.0
PAGE = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Returns all descendants of `pid`, parents first. Ignores processes that end while /proc is read."""
    pids: list[int] = []
    queue = [pid]
    while queue:
        children = _children(queue.pop())
        pids += children
        queue += children
    return pids


def tasks_and_memory(pid: int) -> tuple[int, int]:
    """Returns the number of threads and of resident bytes of all descendants. Shared pages count once for each
    process."""
    tasks = resident = 0
    for child in descendants(pid):
        with suppress(OSError, IndexError, ValueError):
            resident += PAGE * int(_read(f"/proc/{child}/statm").split()[1])
            tasks += len(os.listdir(f"/proc/{child}/task"))
    return tasks, resident


def kill_below(pid: int) -> None:
    """Kills all descendants of `pid` and waits until they are dead, for at most `DYING` seconds (a driver may delay
    their end for longer).

    Orphans are found only if `pid` or a descendant adopts them (a subreaper). The processes are stopped first, so that
    they cannot start new ones.
    """
    killed: set[int] = set()
    for wanted in (signal.SIGSTOP, signal.SIGKILL):
        seen: set[int] = set()
        while fresh := [child for child in descendants(pid) if child not in seen]:
            for child in fresh:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(child, wanted)
            seen.update(fresh)
        killed |= seen
    deadline = time.monotonic() + DYING
    while time.monotonic() < deadline and any(map(is_alive, killed)):
        time.sleep(0.002)


def is_alive(pid: int) -> bool:
    """Whether a process runs; False for a zombie."""
    with suppress(OSError):
        return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def _children(pid: int) -> list[int]:
    pids: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                pids += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return pids


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
