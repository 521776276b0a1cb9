"""One machine's share of a pool: its compilers, sandbox, devices and workers."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from kernel_assistant.environment.ceilings import keep_ceilings, known_ceilings
from kernel_assistant.environment.compile import compiler_version
from kernel_assistant.environment.device_locks import lock_of
from kernel_assistant.environment.screen import screen
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.bandwidth import folder_with_bandwidth
from kernel_assistant_training.episodes.ahead import AheadCompiler
from kernel_assistant_training.episodes.threads import BESIDE_TRAINER, part_of_gpu
from kernel_assistant_training.ppo.pool_events import (
    Began,
    Ended,
    Event,
    Greeting,
    Judged,
    StationOptions,
    TaskOpened,
    WorkerLost,
    with_bandwidth,
)
from kernel_assistant_training.ppo.pool_worker import Job, PoolWorker

Say = Callable[[Event], None]


class Station:
    """Jobs in by `give`, events out by `say`, which any of its threads calls. `logs` gets one file a worker, `cache`
    has the device's bandwidths or gets them."""

    def __init__(self, options: StationOptions, say: Say, logs: Path, cache: Path) -> None:
        self._say, self._cancel = say, threading.Event()
        devices = _devices(options.target)
        count = options.workers or (len(devices) if options.target == "cuda" else 1)
        self.sandbox = choose(options.sandbox)
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-assistant-pool-"))
        # What is timed on a GPU needs a core for each worker.
        spare = max(1, len(os.sched_getaffinity(0)) - (count if options.target == "cuda" else 0))
        threads = options.builders or spare
        builders = lock_of(devices[0]) if options.target == "cpu" else None
        self._compiler = AheadCompiler(
            devices[0], self.sandbox, self._folder, self._cancel, threads=threads, lock=builders
        )
        env = part_of_gpu(count, len(devices), BESIDE_TRAINER) if options.target == "cuda" else {}
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Job]] = deque()
        self._wanted: Counter[str] = Counter()
        self._threads: list[threading.Thread] = []
        self.workers: list[PoolWorker] = []
        try:
            for number in range(count):
                self.workers.append(
                    PoolWorker(
                        devices[number % len(devices)],
                        python=options.python or sys.executable,
                        log=logs / f"worker-{number:02}.log",
                        cache=cache,
                        sandbox=options.sandbox,
                        compiler=self._compiler,
                        quick_only=options.quick_only,
                        cancel=self._cancel,
                        env=env,
                    )
                )
            self.greeting = self._greeted(devices[0], options, logs, cache)
        except BaseException:
            self.close()
            raise
        self._threads = [threading.Thread(target=self._work, args=(worker,), daemon=True) for worker in self.workers]
        for thread in self._threads:
            thread.start()

    def give(self, number: int, job: Job) -> None:
        """Returns at once. What the job asks for is built from now on."""
        with self._changed:
            self._wanted.update(job.hashes)
            self._compiler.begin(one for one, _ in job.candidates if not screen(one, job.task.graph))
            self._waiting.append((number, job))
            self._changed.notify()

    def close(self) -> None:
        """Whatever is under way is given up."""
        with self._changed:
            self._cancel.set()
            self._changed.notify_all()
        for worker in self.workers:
            worker.close()
        self._compiler.close()
        for thread in self._threads:
            thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _greeted(self, device: DeviceFacts, options: StationOptions, logs: Path, cache: Path) -> Greeting:
        """Waits for the first worker; bandwidths are the given ones, those in the cache, or measured now."""
        process = self.workers[0].process
        hello = process.start(self._cancel)
        if options.copy_bandwidth:
            device, where = with_bandwidth(device, options), self._folder
            keep_ceilings(device, where)
        else:
            where = folder_with_bandwidth(device, process, cache, logs, self._cancel)
            device = known_ceilings(device, where) or device
        for worker in self.workers:
            worker.cache = where
        compiler = compiler_version(cuda.compiler() if options.target == "cuda" else cpu.compiler()).splitlines()
        return Greeting(
            workers=len(self.workers),
            device=device,
            toolkit=compiler[-1 if options.target == "cuda" else 0],
            torch=str(hello["torch"]),
            gpus=tuple(cuda.identities()[: len(self.workers)]) if options.target == "cuda" else (),
        )

    def _work(self, worker: PoolWorker) -> None:
        """Until the worker or the station ends."""
        while not worker.lost and (found := self._next(worker)) is not None:
            self._do(worker, *found)

    def _tell(self, event: Event) -> None:
        """Nothing any more once the station ends: what is killed then says nothing of its candidate."""
        if not self._cancel.is_set():
            self._say(event)

    def _next(self, worker: PoolWorker) -> tuple[int, Job] | None:
        """A job whose task the worker has open, else the first."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._cancel.is_set())
            if self._cancel.is_set():
                return None
            mine = [one for one in self._waiting if one[1].task_hash == worker.has_open]
            found = mine[0] if mine else self._waiting[0]
            self._waiting.remove(found)
            return found

    def _do(self, worker: PoolWorker, number: int, job: Job) -> None:
        opened, told = False, 0

        def progress() -> None:
            nonlocal opened, told
            if job.opened is not None and not opened:
                opened = True
                self._tell(TaskOpened.of(number, job.opened))
            for found in job.found[told:]:
                self._tell(Judged(job=number, evaluation=found))
            told = len(job.found)

        self._tell(Began(job=number))
        try:
            worker.do(job, progress)
        except Exception as error:
            # The head must not wait for it; this thread ends with the traceback.
            worker.lost = job.why = f"internal {type(error).__name__}: {error}"
            self._end(worker, number, job, progress)
            raise
        self._end(worker, number, job, progress)

    def _end(self, worker: PoolWorker, number: int, job: Job, progress: Callable[[], None]) -> None:
        """Of a job: every candidate has an answer, builds that nobody wants any more are forgotten."""
        job.found += [None] * (len(job.candidates) - len(job.found))
        progress()
        with self._changed:
            self._wanted.subtract(job.hashes)
            unwanted = [one for (one, _), key in zip(job.candidates, job.hashes, strict=True) if not self._wanted[key]]
            self._compiler.forget(unwanted)
        is_open = tuple(one.has_open for one in self.workers if one.has_open)
        self._tell(Ended(job=number, why=job.why, open=is_open))
        if worker.lost:
            self._tell(WorkerLost(why=worker.lost, left=sum(not one.lost for one in self.workers)))


def _devices(target: str) -> list[DeviceFacts]:
    devices = cuda.gpus() if target == "cuda" else [detect(target)]
    if not devices:
        raise MissingError("no NVIDIA GPU was found", "use --target cpu, or check nvidia-smi")
    names = sorted({device.name for device in devices})
    if len(names) > 1:
        raise UsageError(
            f"this machine has several kinds of GPU ({', '.join(names)}), whose times do not compare",
            "show one kind to the pool: CUDA_VISIBLE_DEVICES",
        )
    return devices
