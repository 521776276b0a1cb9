"""The processes below one process: how many, how much memory, and how to end them all."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

DYING = 2.0
PAGE = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Everything below `pid`, without itself, parents first. Reads /proc, where a process may end while we look."""
    found: list[int] = []
    queue = [pid]
    while queue:
        children = _children(queue.pop())
        found += children
        queue += children
    return found


def tasks_and_memory(pid: int) -> tuple[int, int]:
    """Threads and resident bytes of everything below `pid`. Shared pages count once for each process."""
    tasks = resident = 0
    for child in descendants(pid):
        with suppress(OSError, IndexError, ValueError):
            resident += PAGE * int(_read(f"/proc/{child}/statm").split()[1])
            tasks += len(os.listdir(f"/proc/{child}/task"))
    return tasks, resident


def kill_below(pid: int) -> None:
    """Kill everything below `pid` and wait until it is dead, or for `DYING` seconds (a driver may hold it longer).

    What is orphaned meanwhile must have `pid` above it (a subreaper) to be found. They are stopped first: a process
    that cannot run cannot start another.
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
    """A zombie is not; the state follows the command's name, which may hold anything."""
    with suppress(OSError):
        return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
