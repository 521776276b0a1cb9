"""Several judges at one device: each has a worker process, and what is timed has the device to itself."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Row, RowFile, measure_cases
from bench.kernelbench.problems import Problem
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.source.build import build_task
from kernel_assistant.targets.base import DeviceFacts


@dataclass(frozen=True)
class Judging:
    """How modules are opened. `cache` has the builds, the worker's logs and problems in other precisions."""

    device: DeviceFacts
    precision: str
    numerics: str
    sandbox: str
    cache: Path

    @contextmanager
    def opened(self, source: str, worker: WorkerClient) -> Iterator[Environment]:
        """The class `FILE:CLASS` in a worker, which is started again where the one before died."""
        if not worker.alive:
            worker.restart()
        with open_environment(
            build_task(source, target=self.device.target, numerics=self.numerics),
            device=self.device,
            worker=worker,
            sandbox_mode=self.sandbox,
            cache_dir=self.cache,
            cancel=threading.Event(),
            emit=lambda event: None,
        ) as environment:
            yield environment


def judge(
    chosen: Sequence[Problem], how: Judging, measure: Callable[[Environment], Row], out: RowFile, judges: int
) -> None:
    """Write a row for each problem that `out` does not have yet. A problem that fails has `outcome` "failed"."""

    def row(problem: Problem, worker: WorkerClient) -> Row:
        began = time.monotonic()
        with how.opened(problem.source(how.precision, how.cache), worker) as environment:
            opened = time.monotonic() - began
            found = measure(environment)
            return found | {"opening_seconds": round(opened, 1), "waiting_seconds": round(environment.waited, 1)}

    named = [({"level": one.level, "problem": one.name, "precision": how.precision}, one) for one in chosen]
    measure_cases(named, row, out, [worker_process(how.cache, number) for number in range(judges)])


@contextmanager
def worker_process(cache: Path, number: int = 0) -> Iterator[WorkerClient]:
    """A worker that logs below `cache`."""
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
    with closing(WorkerClient(sys.executable, log=cache / f"worker-{number}.log", env=env)) as worker:
        yield worker
