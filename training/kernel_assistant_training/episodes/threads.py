"""Threads of workers that share a machine."""

from __future__ import annotations

import os


def few_threads(parts: int) -> dict[str, str]:
    """Variables of one of `parts` workers whose measurements are a GPU's: a share of the cores, and no thread bound.

    Left alone each worker binds a pool of threads to all cores in the same order, and each waits for the others: twelve
    of them on 19 cores took 48 s to start and 13 s to open a task, where eight on ten took 1.5 s.
    """
    if parts == 1:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // parts)), "OMP_PROC_BIND": "false"}
