"""The evaluation workers of one process, with their compiler, sandbox and devices."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import traceback
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, Self, TypeVar

from kernel_assistant.environment.ceilings import keep_ceilings, known_ceilings
from kernel_assistant.environment.device_locks import lock_of
from kernel_assistant.environment.screens.screen import screen
from kernel_assistant.errors import MissingError
from kernel_assistant.records import Candidate
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.evaluation.ahead import AheadCompiler
from kernel_assistant_training.evaluation.bandwidth import folder_with_bandwidth
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.tasks import Task
from kernel_assistant_training.evaluation.threads import part_of_gpu
from kernel_assistant_training.evaluation.worker import EvaluationJob, EvaluationWorker

#: Tasks whose candidates are built while those of another one are evaluated.
AHEAD = 4


class CandidatesOfTask(Protocol):
    """A task, and candidates that will be evaluated."""

    @property
    def task(self) -> Task: ...

    @property
    def candidates(self) -> Sequence[Candidate]: ...


class JobObserver(Protocol):
    """Receives the events of a job, from one thread at a time."""

    def began(self) -> None: ...

    def progressed(self) -> None:
        """The task is open, or there is another evaluation."""

    def ended(self, worker: EvaluationWorker) -> None:
        """All candidates have an entry. The worker may be lost."""


Pending = TypeVar("Pending", bound=CandidatesOfTask)


class EvaluationWorkers:
    """A context manager. Either `give` distributes jobs to all workers, or one thread uses one itself, with `ahead`.

    Each worker has a process that keeps a task open. Timing takes turns on a device, block by block on a GPU, so that
    several workers verify, open tasks and prepare meanwhile.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self._options, self.cancel = options, threading.Event()
        self.devices = devices_of(options.target)
        self.sandbox = choose(options.sandbox)
        count = options.count or len(self.devices)
        self.device = self._device_of(options.first)
        self.folder = Path(tempfile.mkdtemp(prefix="kernel-assistant-evaluation-"))
        # With cores of their own, builds disturb no measurement.
        shared = options.target == "cpu" and not options.builder_cores
        self._compiler = AheadCompiler(
            self.device,
            self.sandbox,
            self.folder,
            self.cancel,
            threads=options.builders or _spare_cores(len(self.devices) if options.target == "cuda" else 0),
            cores=options.builder_cores,
            lock=(options.lock or lock_of(self.device)) if shared else None,
        )
        self._changing = threading.Lock()
        self._waiting: deque[tuple[EvaluationJob, JobObserver]] = deque()
        self._wanted: Counter[str] = Counter()
        self._running = ThreadPoolExecutor(count, "evaluation")
        self.workers: list[EvaluationWorker] = []
        try:
            for number in range(options.first, options.first + count):
                self.workers.append(self._worker(number, options.total or count))
        except BaseException:
            self.close()
            raise
        self._idle = list(self.workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def start(self, bandwidths: DeviceFacts | None = None) -> DeviceFacts:
        """Wait for the first worker. Returns its device with the bandwidths, from which evaluations compute the
        roofline: those of `bandwidths`, or else from the cache, or measured now. Raises MissingError."""
        options, process = self._options, self.workers[0].process
        process.start(self.cancel)
        if bandwidths is not None:
            cache = self.folder
            keep_ceilings(bandwidths, cache)
        else:
            lock = options.lock or lock_of(self.device)
            cache = folder_with_bandwidth(self.device, process, options.cache, options.logs, self.cancel, lock)
        for worker in self.workers:
            worker.cache = cache
        self.device = known_ceilings(self.device, cache) or self.device
        return self.device

    def ahead(self, stream: Iterable[Pending]) -> Iterator[Pending]:
        """The items of a stream in order. The candidates of the next `AHEAD` items are being built meanwhile; those of
        an item are dropped when the next one is asked for."""
        waiting: deque[Pending] = deque()
        for one in stream:
            waiting.append(one)
            self._begin(one.task, one.candidates)
            if len(waiting) > AHEAD:
                yield from self._released(waiting.popleft())
        while waiting:
            yield from self._released(waiting.popleft())

    def give(self, job: EvaluationJob, observer: JobObserver) -> None:
        """Returns at once; building of the job's candidates begins."""
        self._begin(job.task, [candidate for candidate, _ in job.candidates])
        with self._changing:
            self._waiting.append((job, observer))
            self._distribute()

    @property
    def open_tasks(self) -> tuple[str, ...]:
        """Hashes of the tasks that are open in a worker."""
        return tuple(one.has_open for one in self.workers if one.has_open)

    def close(self) -> None:
        """End all workers; unfinished jobs are dropped."""
        self.cancel.set()
        with self._changing:
            self._waiting.clear()
        for worker in self.workers:
            worker.close()
        self._compiler.close()
        self._running.shutdown(wait=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _device_of(self, number: int) -> DeviceFacts:
        return self.devices[number % len(self.devices)]

    def _worker(self, number: int, total: int) -> EvaluationWorker:
        options = self._options
        env = part_of_gpu(total, len(self.devices), options.memory) if options.target == "cuda" else {}
        return EvaluationWorker(options, number, self._device_of(number), self._compiler, self.cancel, env)

    def _begin(self, task: Task, candidates: Sequence[Candidate]) -> None:
        """Build candidates in the background, without those that the screen refuses."""
        accepted = [one for one in candidates if not screen(one, task.graph)]
        with self._changing:
            self._wanted.update(one.hash() for one in candidates)
            self._compiler.begin(accepted)

    def _forget(self, candidates: Sequence[Candidate]) -> None:
        """Drop builds that nothing else needs."""
        with self._changing:
            self._wanted.subtract(one.hash() for one in candidates)
            unwanted = [one for one in candidates if not self._wanted[one.hash()]]
            self._compiler.forget(unwanted)
            for one in unwanted:
                self._wanted.pop(one.hash(), None)

    def _released(self, one: Pending) -> Iterator[Pending]:
        yield one
        self._forget(one.candidates)

    def _distribute(self) -> None:
        """Give waiting jobs to idle workers: first those whose task a worker has open."""
        while self._idle and self._waiting and not self.cancel.is_set():
            pairs = ((worker, entry) for worker in self._idle for entry in self._waiting)
            worker, entry = next(
                ((worker, entry) for worker, entry in pairs if worker.has_open == entry[0].task_hash),
                (self._idle[0], self._waiting[0]),
            )
            self._idle.remove(worker)
            self._waiting.remove(entry)
            self._running.submit(self._do, worker, *entry)

    def _do(self, worker: EvaluationWorker, job: EvaluationJob, observer: JobObserver) -> None:
        observer.began()
        try:
            worker.do(job, observer.progressed)
        except Exception as error:  # noqa: BLE001 - whoever waits for the job must hear of it
            traceback.print_exc()
            worker.lost = job.why = f"internal {type(error).__name__}: {error}"
        missing = len(job.candidates) - len(job.found)
        if missing:
            job.found += [None] * missing
            observer.progressed()
        self._forget([candidate for candidate, _ in job.candidates])
        observer.ended(worker)
        with self._changing:
            if not worker.lost:
                self._idle.append(worker)
            self._distribute()


def devices_of(target: str) -> list[DeviceFacts]:
    """The devices that workers may use. Raises MissingError if there is none."""
    devices = cuda.gpus() if target == "cuda" else [detect(target)]
    if not devices:
        raise MissingError("no NVIDIA GPU was found", "use --target cpu, or check nvidia-smi")
    return devices


def _spare_cores(gpus: int) -> int:
    """Cores without one for each GPU, where one worker measures at a time; builds have a low priority."""
    return max(1, len(os.sched_getaffinity(0)) - gpus)
