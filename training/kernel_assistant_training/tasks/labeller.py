"""One process that judges the generator's candidates for tasks: a warm worker, and builders ahead of it."""

from __future__ import annotations

import errno
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

from kernel_assistant.environment.device_locks import alone, lock_of
from kernel_assistant.errors import InternalError, KernelAssistantError, MissingError, UsageError
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.search import initial, neighbours
from kernel_assistant.records import Candidate, Numerics, OpGraph, Tier
from kernel_assistant.records.canonical import canonical
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.session.training_run import Wish, wish_of
from kernel_assistant.source.build import build_task
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.bandwidth import folder_with_bandwidth
from kernel_assistant_training.episodes.ahead import AheadCompiler
from kernel_assistant_training.episodes.lines import Lines
from kernel_assistant_training.episodes.threads import part_of_gpu
from kernel_assistant_training.ppo.pool_worker import Job, PoolWorker
from kernel_assistant_training.ppo.tasks import Task
from kernel_assistant_training.tasks.label_rows import Label, label_of, rows_of
from kernel_assistant_training.tasks.shards import graph_of, read_rows

#: Tasks whose candidates are built before their turn comes.
AHEAD = 4
LOOK_SECONDS = 0.5
#: So many in a row that fail are not those tasks' fault.
MOST_FAILED = 20
#: What the system says for want of something that other tasks want, too.
_SCARCE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS})


@dataclass(frozen=True)
class LabelOptions:
    """`candidates` of a task at most, of the first `tasks_most` tasks; part by part in `parts` processes with
    `builders` compilers each. With `rows_most` rows in the folder no task is begun."""

    out: Path
    tasks: Path
    target: str
    python: str
    cache: Path
    candidates: int = 16
    tasks_most: int = 1 << 62
    rows_most: int = 1 << 62
    parts: int = 1
    builders: int = 1
    sandbox: str = "auto"
    seconds: float = float("inf")


@dataclass(frozen=True)
class Waiting:
    """A task whose candidates from `first` on are being built."""

    task: Task
    number: int
    first: int
    candidates: tuple[Candidate, ...]


class Labeller:
    """A context manager; part `part` of the tasks."""

    def __init__(self, options: LabelOptions, part: int) -> None:
        self._options, self._part, self._ready = options, part, False
        self._failed = 0
        folder = options.out / "labels"
        self._lines = Lines(folder / f"labels-{part:02}.jsonl")
        self._done, self._without = rows_of(folder)
        self._device = _device(options.target, part)
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-assistant-labels-"))
        self._cancel = threading.Event()
        self._compiler = AheadCompiler(
            self._device,
            choose(options.sandbox),
            self._folder,
            self._cancel,
            threads=options.builders,
            lock=lock_of(self._device) if options.target == "cpu" else None,
        )
        self._worker = PoolWorker(
            self._device,
            python=options.python,
            log=folder / f"worker-{part:02}.log",
            cache=options.cache,
            sandbox=options.sandbox,
            compiler=self._compiler,
            quick_only=True,
            throughput=True,
            cancel=self._cancel,
            env=part_of_gpu(options.parts, len(cuda.gpus())) if options.target == "cuda" else None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self._cancel.set()
        self._compiler.close()
        self._worker.close()
        self._lines.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self) -> None:
        """All tasks of this part, or until the time is over or no worker can be started."""
        until = time.monotonic() + self._options.seconds
        waiting: deque[Waiting] = deque()
        for one in self._tasks():
            waiting.append(one)
            self._compiler.begin(one.candidates)
            if len(waiting) > AHEAD:
                self._judge(waiting.popleft())
            if time.monotonic() >= until or not self._goes_on():
                return
        while waiting and time.monotonic() < until and self._goes_on():
            self._judge(waiting.popleft())

    def _goes_on(self) -> bool:
        """False where somebody wants an end; waits while they want a pause."""
        folder = self._options.out / "labels"
        while (wish := wish_of(folder)) is Wish.pause:
            time.sleep(LOOK_SECONDS)
        return wish is not Wish.stop

    def _measure_bandwidth(self) -> None:
        """Evaluations name the floor."""
        options, worker = self._options, self._worker
        # All at once, and not one behind another under the lock.
        worker.process.start(self._cancel)
        with alone(self._device, self._cancel):
            own = options.out / "labels"
            worker.cache = folder_with_bandwidth(self._device, worker.process, options.cache, own, self._cancel)
        self._ready = True

    def _tasks(self) -> Iterator[Waiting]:
        """Of the training split and this part, with the candidates that have no row."""
        options = self._options
        for row in read_rows(options.tasks)[: options.tasks_most]:
            if row["split"] != "train" or int(row["key"][:8], 16) % options.parts != self._part:
                continue
            done = self._done[row["key"]]
            if done >= options.candidates or row["key"] in self._without:
                continue
            one: Waiting | None = None
            with self._outlived(row["key"]):
                found = tuple(islice(candidates(graph_of(row), self._device), options.candidates))
                if done < len(found):
                    one = Waiting(task_of(row, options.target), row["number"], done, found[done:])
            if one is not None:
                yield one

    @contextmanager
    def _outlived(self, key: str) -> Iterator[None]:
        """What goes wrong with a task costs that task, which has a row that says so. Raises what is the machine's."""
        try:
            yield
        except Unsupported as why:
            self._add(key, "unsupported", str(why))
        except Exception as error:
            if of_machine(error):
                raise
            self._add(key, "failed", f"{type(error).__name__}: {error}")
            self._failed += 1
            if self._failed == MOST_FAILED:
                cause = f"{MOST_FAILED} tasks in a row failed, the last with {type(error).__name__}: {error}"
                raise InternalError(cause, "their rows have the messages") from error

    def _judge(self, one: Waiting) -> None:
        if not self._ready:
            self._measure_bandwidth()
        job = Job(one.task, tuple((candidate, Tier.quick) for candidate in one.candidates))
        began, known, judged = time.monotonic(), list[float](), False
        with self._outlived(one.task.key):
            self._worker.do(job, lambda: known.append(time.monotonic()))
            judged, self._failed = True, 0
        self._compiler.forget(one.candidates)
        if not judged:
            self._worker.renew()
        elif job.opened is None and not any(job.found):
            self._add(one.task.key, "unopened", job.why)
        else:
            opened: float | None = round(known[0] - began, 4)
            for number, (candidate, found) in enumerate(zip(one.candidates, job.found, strict=True), one.first):
                self._lines.add(label_of(one.task.key, number, candidate, found, self._device, opened))
                opened = None
        if self._worker.lost:
            raise MissingError(
                f"no worker could be started: {self._worker.lost}", f"see worker-{self._part:02}.log beside the labels"
            )

    def _add(self, key: str, outcome: str, message: str) -> None:
        self._lines.add(
            Label(
                task=key,
                number=0,
                target=self._options.target,
                device=self._device.arch,
                outcome=outcome,
                message=message,
            )
        )


def candidates(graph: OpGraph, device: DeviceFacts) -> Iterator[Candidate]:
    """The generator's: its first schedules, then their neighbours, and theirs, each text once. Raises Unsupported."""
    schedules = dict.fromkeys(initial(graph, device.target, device))
    texts = set[str]()
    waiting, known = deque(schedules), deque(schedules)
    while known:
        while waiting:
            candidate = emit(graph, waiting.popleft())
            if candidate.hash() not in texts:
                texts.add(candidate.hash())
                yield candidate
        # Only now: each neighbour is written once to see whether it fits, and most are never asked for.
        fresh = [other for other in neighbours(graph, known.popleft(), device) if other not in schedules]
        schedules |= dict.fromkeys(fresh)
        waiting.extend(fresh)
        known.extend(fresh)


def of_machine(error: Exception) -> bool:
    """Whether the next task would meet it, too. A UsageError is about what was asked, which is the task."""
    if isinstance(error, KernelAssistantError):
        return not isinstance(error, UsageError)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SCARCE)


def task_of(row: dict[str, Any], target: str) -> Task:
    """A row of the shards as the pool of training by reward takes it."""
    path = f"/nowhere/task_{row['key']}.py"
    described = build_task(path, target=target, numerics=Numerics.kernelbench, text=row["text"])
    graph = graph_of(row)
    return Task(row["key"], row["operator_count"], graph, canonical(graph), described)


def _device(target: str, part: int) -> DeviceFacts:
    """Of several GPUs the parts have one each in turn. Raises MissingError where there is none."""
    gpus = cuda.gpus() if target == "cuda" else []
    return gpus[part % len(gpus)] if gpus else detect(target)
