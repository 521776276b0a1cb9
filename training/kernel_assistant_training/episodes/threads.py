"""Threads and memory of workers that share a machine."""

from __future__ import annotations

import os

from kernel_assistant.environment.measuring import GPU_SHARE

#: What workers may take of a GPU's memory together. The rest is for their contexts and candidates' processes; and for a
#: trainer, where one may be on the same GPU.
ALONE, BESIDE_TRAINER = 0.8, 0.6


def few_threads(parts: int) -> dict[str, str]:
    """Variables of one of `parts` workers whose measurements are a GPU's: a share of the cores, and no thread bound.

    Left alone each worker binds a pool of threads to all cores in the same order, and each waits for the others: twelve
    of them on 19 cores took 48 s to start and 13 s to open a task, where eight on ten took 1.5 s.
    """
    if parts == 1:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // parts)), "OMP_PROC_BIND": "false"}


def share_of_gpu(parts: int, gpus: int = 1, together: float = ALONE) -> float:
    """What one of `parts` workers, which have `gpus` in turn, may take of its GPU's memory. Who is alone has all."""
    each = -(-parts // max(gpus, 1))
    return 1.0 if each == 1 and together == ALONE else round(together / each, 4)


def part_of_gpu(parts: int, gpus: int = 1, together: float = ALONE) -> dict[str, str]:
    """Variables of one of `parts` workers of `gpus`: its threads, and its share of a GPU's memory.

    One reference with large values in between, or what PyTorch's allocator keeps behind it, took the memory of all
    others, and of the trainer. Now it is that task which cannot be judged.
    """
    share = share_of_gpu(parts, gpus, together)
    return few_threads(parts) | ({} if share == 1.0 else {GPU_SHARE: str(share)})
