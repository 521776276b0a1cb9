"""How evaluation workers are set up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.records import Tier
from kernel_assistant.worker.device_lock import DeviceLock
from kernel_assistant_training.evaluation.threads import ALONE


@dataclass(frozen=True)
class WorkerOptions:
    """`count` workers, 0 for one per GPU, are numbered from `first` on; `total`, 0 for all of them, is their number in
    all processes of this machine, which take its GPUs in turn and share `memory` of each.

    `logs` gets a file for each worker; `cache` has the device's bandwidths, or gets them, unless `bandwidths` of a copy
    and of reading are given, in bytes/s. `builders` compilers run at once, 0 for one per core, on `builder_cores` if
    given. `lock` is for a process with cores of its own, where no other one measures. `sandbox`, `most` and
    `throughput` are as for `Environment`."""

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
