"""Threads and GPU memory of workers that share a machine."""

from __future__ import annotations

import os

from kernel_assistant.environment.measuring import GPU_SHARE

#: Share of a GPU's memory for all its workers together; the rest is for their contexts and for candidates' processes,
#: and in the second case for a trainer on the same GPU.
ALONE, BESIDE_TRAINER = 0.8, 0.6


def share_of_gpu(parts: int, gpus: int = 1, together: float = ALONE) -> float:
    """The share of a GPU's memory that each of `parts` workers may take, assigned to `gpus` in turn. A single worker
    gets all."""
    each = -(-parts // max(gpus, 1))
    return 1.0 if each == 1 and together == ALONE else round(together / each, 4)


def part_of_gpu(parts: int, gpus: int = 1, together: float = ALONE) -> dict[str, str]:
    """Environment variables of one of `parts` workers on `gpus` GPUs: a share of the cores, no thread bound to a core,
    and a share of a GPU's memory.

    By default every worker binds its threads to the cores in the same order, so that workers wait for each other:
    twelve of them on 19 cores took 48 s to start and 13 s to open a task, where eight on ten took 1.5 s. Without a
    limit of memory, one reference with large intermediate values, or memory that PyTorch's allocator keeps, leaves none
    for the other workers and the trainer. With it, only that task cannot be evaluated.
    """
    cores, share = len(os.sched_getaffinity(0)), share_of_gpu(parts, gpus, together)
    threads = {"OMP_NUM_THREADS": str(max(1, cores // parts)), "OMP_PROC_BIND": "false"} if parts > 1 else {}
    return threads | ({} if share == 1.0 else {GPU_SHARE: str(share)})
