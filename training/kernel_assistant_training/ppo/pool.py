"""The pool: workers on this machine that judge candidates for training, each identical one once."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kernel_assistant.environment.screen import screen
from kernel_assistant.errors import DeviceError, MissingError
from kernel_assistant.records import Candidate, Evaluation, Tier
from kernel_assistant.records.codec import Record
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.bandwidth import folder_with_bandwidth
from kernel_assistant_training.episodes.ahead import AheadCompiler
from kernel_assistant_training.episodes.lines import Lines, read_lines
from kernel_assistant_training.ppo.pool_worker import Job, Opened, PoolWorker
from kernel_assistant_training.ppo.tasks import Task


@dataclass(frozen=True)
class PoolOptions:
    """`out` gets evaluations.jsonl and logs, `cache` has the device's bandwidths. `quick_only` sets less memory and
    time aside, for rewards that need no full protocol; `builders` compilers run at once."""

    target: str
    out: Path
    cache: Path
    python: str
    workers: int = 1
    builders: int = 2
    sandbox: str = "auto"
    quick_only: bool = True


@dataclass(frozen=True)
class Asked:
    """A candidate for a task that is to be judged."""

    task: Task
    candidate: Candidate
    tier: Tier = Tier.quick

    @property
    def key(self) -> tuple[str, str, str]:
        """The task itself, not its canonical graph: that is the same at all sizes, what it takes is not."""
        return self.task.kernel_task.hash(), self.candidate.hash(), self.tier.value


class Known(Record, frozen=True, kw_only=True):
    """A line of evaluations.jsonl. `task` is the hash of a `KernelTask`."""

    task: str
    evaluation: Evaluation


class Pool:
    """A context manager. For one thread. Workers of a device take turns on what is timed."""

    def __init__(self, options: PoolOptions) -> None:
        self._options = options
        devices = cuda.gpus() if options.target == "cuda" else [detect(options.target)]
        if not devices:
            raise MissingError("no NVIDIA GPU was found", "use --target cpu, or check nvidia-smi")
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-assistant-pool-"))
        self._cancel = threading.Event()
        self._lines = Lines(options.out / "evaluations.jsonl")
        self._known: dict[tuple[str, str, str], Evaluation | None] = {
            (one.task, one.evaluation.candidate, one.evaluation.tier.value): one.evaluation
            for one in read_lines(options.out / "evaluations.jsonl", Known)
        }
        self.device: DeviceFacts = devices[0]
        self.sandbox = choose(options.sandbox)
        self._compiler = AheadCompiler(self.device, self.sandbox, self._folder, self._cancel, threads=options.builders)
        turns = [threading.Lock() for _ in devices]
        self.workers = [
            PoolWorker(
                devices[number % len(devices)],
                python=options.python,
                log=options.out / f"worker-{number:02}.log",
                cache=options.cache,
                sandbox=options.sandbox,
                compiler=self._compiler,
                measuring=turns[number % len(devices)],
                quick_only=options.quick_only,
                cancel=self._cancel,
            )
            for number in range(options.workers)
        ]
        try:
            where = folder_with_bandwidth(
                self.device, self.workers[0].process, options.cache, options.out, self._cancel
            )
        except BaseException:
            self.close()
            raise
        for worker in self.workers:
            worker.cache = where
        self.judged = self.repeated = self.void = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self, tasks: Collection[Task]) -> dict[str, Opened]:
        """Each task's graph, facts and times of eager PyTorch, by key. Those that cannot be judged are left out."""
        jobs = [Job(task, ()) for task in tasks]
        self._run(jobs)
        return {job.task.key: job.opened for job in jobs if job.opened is not None}

    def judge(self, asked: Sequence[Asked]) -> list[Evaluation | None]:
        """In order; None where the judge was lost at it. Raises DeviceError where no worker is left."""
        fresh: dict[tuple[str, str, str], Asked] = {}
        for one in asked:
            if one.key not in self._known:
                fresh.setdefault(one.key, one)
        self.repeated += len(asked) - len(fresh)
        self._build([one for one in fresh.values() if not screen(one.candidate, one.task.graph)])
        by_task: dict[str, list[Asked]] = {}
        for one in fresh.values():
            by_task.setdefault(one.task.kernel_task.hash(), []).append(one)
        jobs = [Job(some[0].task, tuple((one.candidate, one.tier) for one in some)) for some in by_task.values()]
        self._run(jobs)
        for job in jobs:
            task = job.task.kernel_task.hash()
            for (candidate, tier), found in zip(job.candidates, job.found, strict=True):
                self._known[task, candidate.hash(), tier.value] = found
                self.judged += 1
                self.void += found is None
                if found is not None:
                    self._lines.add(Known(task=task, evaluation=found))
        self._compiler.forget(one.candidate for one in fresh.values())
        return [self._known[one.key] for one in asked]

    def close(self) -> None:
        self._cancel.set()
        self._compiler.close()
        for worker in self.workers:
            worker.close()
        self._lines.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _build(self, asked: Sequence[Asked]) -> None:
        """All before anything is timed: on the CPU compilers would disturb it."""
        candidates = [one.candidate for one in asked]
        self._compiler.begin(candidates)
        for candidate in candidates:
            self._compiler.build(candidate)

    def _run(self, jobs: Sequence[Job]) -> None:
        """Shared among the workers that are left: each takes the task that it has open, else the next."""
        waiting, lock = list(jobs), threading.Lock()

        def next_for(worker: PoolWorker) -> Job | None:
            with lock:
                mine = next((job for job in waiting if job.task.kernel_task.hash() == worker.has_open), None)
                found = mine or (waiting[0] if waiting else None)
                if found is not None:
                    waiting.remove(found)
                return found

        def work(worker: PoolWorker) -> None:
            while not worker.lost and (job := next_for(worker)) is not None:
                worker.do(job)

        threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in self.workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if waiting:
            why = "; ".join(worker.lost for worker in self.workers)
            raise DeviceError(f"no worker is left to judge: {why}", "see worker-00.log in the run's folder")
