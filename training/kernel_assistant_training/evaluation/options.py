"""Sets up evaluation workers: their options, threads and GPU memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.environment.measuring import GPU_SHARE
from kernel_assistant.records import Tier
from kernel_assistant.worker.device_lock import DeviceLock

#: Share of a GPU's memory for all its workers together; the rest is for their contexts and for candidates' processes,
#: and in the second case for a trainer on the same GPU.
ALONE, BESIDE_TRAINER = 0.8, 0.6


def share_of_gpu(parts: int, gpus: int = 1, together: float = ALONE) -> float:
    """Returns the share (0 to 1) of a GPU's memory that each of `parts` workers may take, if the workers are spread
    evenly over `gpus` GPUs. `together` is the share for all workers of a GPU. A worker alone on a GPU gets all
    memory."""
    each = -(-parts // max(gpus, 1))
    return 1.0 if each == 1 and together == ALONE else round(together / each, 4)


def share_of_cores(parts: int) -> dict[str, str]:
    """Returns environment variables for one of `parts` workers. They limit its threads and inductor's compile processes
    to its share of the cores, and bind no thread to a core.

    By default every worker has a compile process for each core, and binds its threads to the cores in the same order,
    so that workers wait for each other: twelve workers on 19 cores took 48 s to start and 13 s to open a task; eight
    workers on ten cores opened one in 1.5 s.
    """
    each = str(max(1, len(os.sched_getaffinity(0)) // parts))
    names = {"OMP_NUM_THREADS": each, "OMP_PROC_BIND": "false", "TORCHINDUCTOR_COMPILE_THREADS": each}
    return names if parts > 1 else {}


def part_of_gpu(parts: int, gpus: int = 1, together: float = ALONE) -> dict[str, str]:
    """Returns environment variables that give one of `parts` workers on `gpus` GPUs its share of the cores and of a
    GPU's memory. `together` is the share of a GPU's memory for all its workers.

    The limit protects the other workers and the trainer: without it, one reference with large intermediate values, or
    memory that PyTorch's allocator keeps, could leave none for them. With it, only the task of that reference fails.
    """
    share = share_of_gpu(parts, gpus, together)
    return share_of_cores(parts) | ({} if share == 1.0 else {GPU_SHARE: str(share)})


@dataclass(frozen=True)
class WorkerOptions:
    """The options of the workers of one process. It has `count` workers (0: one per GPU), which are numbered from
    `first` on. `total` is the number of workers in all processes of this machine (0: only this process has any). All
    these workers are spread over the machine's GPUs and share the fraction `memory` of each GPU's memory.

    `logs` is the folder for a log file of each worker. `cache` is the folder with the device's bandwidths. If it has
    none, they are measured, or taken from `bandwidths` (copy, read; in bytes/s). `builders` compilers run at once (0:
    one per core), on `builder_cores` if given. `lock` replaces the device lock if no other process measures on this
    process's cores. `sandbox`, `most` (the most thorough tier) and `throughput` are as for `Environment`.
    """

    target: str
    python: str
    logs: Path
    cache: Path
    count: int = 1
    first: int = 0
    total: int = 0
    builders: int = 0
    builder_cores: tuple[int, ...] = ()
    sandbox: str = "auto"
    most: Tier = Tier.quick
    throughput: bool = True
    memory: float = ALONE
    lock: DeviceLock | None = None
    bandwidths: tuple[float, float] | None = None
