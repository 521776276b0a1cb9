"""Several judges at one device: each has a worker process, and what is timed has the device to itself."""

from __future__ import annotations

import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.kernelbench.problems import Problem
from bench.kernelbench.rows import Row, RowFile, key_of
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.source.build import build_task
from kernel_assistant.targets.base import DeviceFacts


@dataclass(frozen=True)
class Judging:
    """How problems are opened. `cache` has the builds, the worker's logs and problems in other precisions."""

    device: DeviceFacts
    precision: str
    numerics: str
    sandbox: str
    cache: Path

    @contextmanager
    def opened(self, problem: Problem, worker: WorkerClient) -> Iterator[Environment]:
        source = problem.source(self.precision, self.cache)
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


#: What a judge does with an open problem; the row gets level, name, precision and seconds.
Measure = Callable[[Environment], Row]


def judge(chosen: Sequence[Problem], how: Judging, measure: Measure, out: RowFile, judges: int) -> None:
    """Write a row for each problem that `out` does not have yet. A problem that fails has `outcome` "failed"."""
    known = {(*key_of(row), row["precision"]) for row in out.read()}
    waiting = queue.SimpleQueue[Problem]()
    left = [one for one in chosen if (one.level, one.name, how.precision) not in known]
    for one in left:
        waiting.put(one)
    print(f"{len(left)} problems to do, {len(chosen) - len(left)} done before", flush=True)
    threads = [threading.Thread(target=_judge, args=(number, waiting, how, measure, out)) for number in range(judges)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _judge(number: int, waiting: queue.SimpleQueue[Problem], how: Judging, measure: Measure, out: RowFile) -> None:
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TORCHINDUCTOR_CACHE_DIR": str(how.cache / "inductor")}
    worker = WorkerClient(sys.executable, log=how.cache / f"worker-{number}.log", env=env)
    try:
        while True:
            try:
                problem = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            row = _row(problem, how, measure, worker)
            if not worker.alive:
                worker.restart()
            known = {"level": problem.level, "problem": problem.name, "precision": how.precision}
            out.add({**known, **row, "seconds": round(time.monotonic() - began, 1)})
            print(f"level {problem.level}, {problem.name}: {row['outcome']} {row.get('reason', '')}", flush=True)
    finally:
        worker.close()


def _row(problem: Problem, how: Judging, measure: Measure, worker: WorkerClient) -> Row:
    try:
        with how.opened(problem, worker) as environment:
            return measure(environment)
    except KernelAssistantError as error:
        return {"outcome": "failed", "reason": f"{error.cause}", "detail": error.detail}
    except Exception as error:  # noqa: BLE001 - one bad problem is a row, with its traceback
        return {
            "outcome": "failed",
            "reason": f"{type(error).__name__}: {error}",
            "detail": traceback.format_exc(),
        }
