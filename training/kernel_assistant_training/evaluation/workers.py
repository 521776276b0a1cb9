"""The evaluation workers of one process, with their compiler, sandbox and devices."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol, Self, TypeVar

import msgspec

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
from kernel_assistant_training.evaluation.options import WorkerOptions, part_of_gpu
from kernel_assistant_training.evaluation.tasks import Task
from kernel_assistant_training.evaluation.worker import EvaluationWorker

#: Tasks whose candidates are built while those of another one are evaluated.
AHEAD = 4


class CandidatesOfTask(Protocol):
    """A task, and the candidates for it that will be evaluated."""

    @property
    def task(self) -> Task: ...

    @property
    def candidates(self) -> Sequence[Candidate]: ...


Pending = TypeVar("Pending", bound=CandidatesOfTask)


class EvaluationWorkers:
    """The evaluation workers of this process, as a context manager. Each worker has a process that keeps a task open.
    Workers of one device take turns at timing (on a GPU after a few timed calls each); while one worker times, the
    other workers verify and open tasks."""

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
        self.workers: list[EvaluationWorker] = []
        try:
            for number in range(options.first, options.first + count):
                self.workers.append(self._worker(number, options.total or count))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def start(self) -> DeviceFacts:
        """Starts the first worker's process and waits for it. Returns the device with the bandwidths from which
        evaluations compute the roofline: `options.bandwidths` if given, else those in the cache, else newly measured
        ones. Raises MissingError if the process cannot be started."""
        options, process, cache = self._options, self.workers[0].process, self.folder
        process.start(self.cancel)
        if options.bandwidths is not None:
            copy, read = options.bandwidths
            keep_ceilings(msgspec.structs.replace(self.device, copy_bandwidth=copy, read_bandwidth=read), cache)
        else:
            lock = options.lock or lock_of(self.device)
            cache = folder_with_bandwidth(self.device, process, options.cache, options.logs, self.cancel, lock)
        for worker in self.workers:
            worker.cache = cache
        self.device = known_ceilings(self.device, cache) or self.device
        return self.device

    def ahead(self, stream: Iterable[Pending], goes_on: Callable[[], bool] = lambda: True) -> Iterator[Pending]:
        """Yields the items of a stream in order, while `goes_on` returns True. Meanwhile the candidates of the next
        `AHEAD` items are compiled. When the next item is requested, the binaries of the previous item are dropped."""
        waiting, rest = deque[Pending](), iter(stream)
        while goes_on():
            for one in islice(rest, AHEAD + 1 - len(waiting)):
                waiting.append(one)
                self.build(one.task, one.candidates)
            if not waiting or not goes_on():
                return
            yield waiting[0]
            self.forget(waiting.popleft().candidates)

    def build(self, task: Task, candidates: Iterable[Candidate]) -> None:
        """Builds candidates in the background, except candidates that the check of the source text refuses."""
        self._compiler.begin(candidates, lambda one: not screen(one, task.graph))

    def forget(self, candidates: Iterable[Candidate]) -> None:
        """Drops the binaries of candidates that are not needed any more, and cancels their builds."""
        self._compiler.forget(candidates)

    def close(self) -> None:
        """Ends all workers and builds, and deletes the temporary folder."""
        self.cancel.set()
        for worker in self.workers:
            worker.close()
        self._compiler.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _device_of(self, number: int) -> DeviceFacts:
        return self.devices[number % len(self.devices)]

    def _worker(self, number: int, total: int) -> EvaluationWorker:
        options = self._options
        env = part_of_gpu(total, len(self.devices), options.memory) if options.target == "cuda" else {}
        return EvaluationWorker(options, number, self._device_of(number), self._compiler, self.cancel, env)


def devices_of(target: str) -> list[DeviceFacts]:
    """Returns the devices that workers of a target may use: all GPUs, or the CPU as one device. Raises MissingError if
    there is no GPU."""
    devices = cuda.gpus() if target == "cuda" else [detect(target)]
    if not devices:
        raise MissingError("no NVIDIA GPU was found", "use --target cpu, or check nvidia-smi")
    return devices


def _spare_cores(gpus: int) -> int:
    """Returns the number of cores for builds: all cores but one for each GPU, which the worker that measures there
    needs; at least 1."""
    return max(1, len(os.sched_getaffinity(0)) - gpus)
