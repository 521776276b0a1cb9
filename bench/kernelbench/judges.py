"""Several judges at one device: each has a worker process, and what is timed has the device to itself."""

from __future__ import annotations

import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.harness import Row, RowFile, measure_cases
from bench.kernelbench.memory import Memory, needed_bytes
from bench.kernelbench.problems import Problem
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import DeviceOutOfMemory, WorkerClient
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.source.build import build_task
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.evaluation.options import share_of_cores

#: As PyTorch, the driver and the judge's arena say it.
OUT_OF_MEMORY = re.compile("out.of.memory|device memory left", re.IGNORECASE)


@dataclass(frozen=True)
class Judging:
    """How modules are opened, in training mode if `training`. `cache` has the builds, the worker's logs and problems in
    other precisions."""

    device: DeviceFacts
    precision: str
    numerics: str
    sandbox: str
    cache: Path
    training: bool = False

    @contextmanager
    def opened(self, source: str, worker: WorkerClient) -> Iterator[Environment]:
        """The class `FILE:CLASS` in a worker, which is started again where the one before died."""
        if not worker.alive:
            worker.restart()
        task = build_task(source, target=self.device.target, numerics=self.numerics)
        with open_environment(
            msgspec.structs.replace(task, training=task.training or self.training),
            device=self.device,
            worker=worker,
            sandbox_mode=self.sandbox,
            cache_dir=self.cache,
            cancel=threading.Event(),
            emit=lambda event: None,
        ) as environment:
            yield environment


def judge(
    chosen: Sequence[Problem],
    how: Judging,
    measure: Callable[[Environment], Row],
    out: RowFile,
    judges: int,
    seconds: float = math.inf,
) -> None:
    """Write a row for each problem that `out` does not have yet, `measure` of the open problem."""

    def measured(problem: Problem, worker: WorkerClient) -> Row:
        began = time.monotonic()
        with how.opened(problem.source(how.precision, how.cache), worker) as environment:
            opened = time.monotonic() - began
            found = measure(environment)
            return found | {"opening_seconds": round(opened, 1), "waiting_seconds": round(environment.waited, 1)}

    judge_by(chosen, how, measured, out, judges, seconds)


def judge_by(
    chosen: Sequence[Problem],
    how: Judging,
    measured: Callable[[Problem, WorkerClient], Row],
    out: RowFile,
    judges: int,
    seconds: float = math.inf,
) -> None:
    """Write a row for each problem that `out` does not have yet; none begins after `seconds`. A problem that fails has
    `outcome` "failed"; if it or all its candidates lacked memory beside other judges, it is measured once more without
    them. A worker that had much of the memory is started again, since PyTorch keeps what it had."""
    memory = Memory(how.device.memory_bytes, judges)

    def holding(problem: Problem, worker: WorkerClient, needed: int) -> Row:
        with memory.taken(needed):
            try:
                return measured(problem, worker)
            finally:
                if judges > 1 and needed * judges > memory.most:
                    worker.kill()  # it is started again with its next problem

    def row(problem: Problem, worker: WorkerClient) -> Row:
        try:
            found = holding(problem, worker, needed_bytes(problem.path))
            if judges == 1 or not lacked_memory(found):
                return found
        except KernelAssistantError as error:
            if judges == 1 or not is_of_memory(error):
                raise
        worker.restart()
        return holding(problem, worker, memory.most)

    named = [({"level": one.level, "problem": one.name, "precision": how.precision}, one) for one in chosen]
    workers = [worker_process(how.cache, number, judges) for number in range(judges)]
    measure_cases(named, row, out, workers, seconds)


def lacked_memory(row: Row) -> bool:
    """Whether no candidate was verified, and one lacked memory."""
    told = " ".join(row.get("messages", ()))
    lacked = row.get("outcomes", {}).get("out_of_memory") or OUT_OF_MEMORY.search(told)
    return bool(lacked) and "candidate_ms" not in row


def is_of_memory(error: KernelAssistantError) -> bool:
    """Whether memory of the device is what was missing."""
    return isinstance(error, DeviceOutOfMemory) or bool(OUT_OF_MEMORY.search(str(error.cause)))


@contextmanager
def worker_process(cache: Path, number: int = 0, workers: int = 1) -> Iterator[WorkerClient]:
    """One of `workers` that share the processor; it logs below `cache`."""
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
    env |= share_of_cores(workers)
    with closing(WorkerClient(sys.executable, log=cache / f"worker-{number}.log", env=env)) as worker:
        yield worker
