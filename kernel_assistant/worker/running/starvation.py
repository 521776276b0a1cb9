"""Measures how long the threads of a process have waited for a processor because other work had it."""

from __future__ import annotations

import os
from collections.abc import Iterable

#: Seconds that each thread has waited, by its process and thread id.
Waited = dict[tuple[int, int], float]


def waited_for_processor(pids: Iterable[int]) -> Waited:
    """Returns, for all threads of the processes `pids`, (process, thread) → seconds for which the thread has waited for
    a processor since its start, from Linux's `/proc/PID/task/TID/schedstat`. Processes that have ended are left out;
    empty where the kernel does not count."""
    waited: Waited = {}
    for pid in pids:
        try:
            for tid in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as file:
                    waited[pid, int(tid)] = int(file.read().split()[1]) * 1e-9
        except (OSError, IndexError, ValueError):
            continue
    return waited


def longest_wait(before: Waited, now: Waited) -> float:
    """Returns the longest time in seconds that a single thread has waited for a processor between `before` and `now`; 0
    without threads."""
    return max((seconds - before.get(thread, 0.0) for thread, seconds in now.items()), default=0.0)
