"""A process that judges the generator's candidates for tasks: a warm worker, and builders that compile ahead of it."""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Self

from kernel_assistant.errors import InternalError, KernelAssistantError, UsageError
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import Candidate, Numerics, OpGraph, Tier
from kernel_assistant.records.canonical import canonical
from kernel_assistant.session.training_run import TrainingCommand, wish_of
from kernel_assistant.source.build import build_task
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.episodes.lines import EpisodeFile
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.tasks import Task
from kernel_assistant_training.evaluation.worker import EvaluationJob
from kernel_assistant_training.evaluation.workers import EvaluationWorkers
from kernel_assistant_training.tasks.label_rows import Label, label_of, rows_of
from kernel_assistant_training.tasks.shards import graph_of, read_rows

LOOK_SECONDS = 0.5
#: If this many tasks fail in a row, the cause is not the tasks.
MOST_FAILED = 20
#: Error numbers of exhausted resources, which would fail other tasks as well.
_SCARCE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS})


@dataclass(frozen=True)
class LabelOptions:
    """At most `candidates` of each of the first `tasks_most` tasks, divided among `parts` processes with `builders`
    compilers each. No task is started once the folder has `rows_most` rows."""

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
class PendingTask:
    """A task whose candidates, from number `first` on, are being built."""

    task: Task
    number: int
    first: int
    candidates: tuple[Candidate, ...]


class Labeller:
    """A context manager that judges part `part` of the tasks."""

    def __init__(self, options: LabelOptions, part: int) -> None:
        self._options, self._part, self._ready = options, part, False
        self._failed = 0
        folder = options.out / "labels"
        self._lines = EpisodeFile(folder / f"labels-{part:02}.jsonl")
        self._done, self._without = rows_of(folder)
        self._workers = EvaluationWorkers(
            WorkerOptions(
                target=options.target,
                python=options.python,
                logs=folder,
                cache=options.cache,
                first=part,
                total=options.parts,
                builders=options.builders,
                sandbox=options.sandbox,
            )
        )
        self._worker, self._device = self._workers.workers[0], self._workers.device

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self._workers.close()
        self._lines.close()

    def run(self) -> None:
        """Judges all tasks of this part, until the time is over or a stop is requested. Raises MissingError if no
        worker can be started."""
        until = time.monotonic() + self._options.seconds
        for one in self._workers.ahead(takewhile(lambda one: self._goes_on(until), self._tasks())):
            if not self._goes_on(until):
                return
            self._judge(one)

    def _goes_on(self, until: float) -> bool:
        """Whether to continue: waits during a pause, False after `until` or if a stop is requested."""
        folder = self._options.out / "labels"
        while (command := wish_of(folder)) is TrainingCommand.pause:
            time.sleep(LOOK_SECONDS)
        return command is not TrainingCommand.stop and time.monotonic() < until

    def _tasks(self) -> Iterator[PendingTask]:
        """The tasks of the training split in this part, with those candidates that have no row."""
        options = self._options
        for row in read_rows(options.tasks)[: options.tasks_most]:
            if row["split"] != "train" or int(row["key"][:8], 16) % options.parts != self._part:
                continue
            done = self._done[row["key"]]
            if done >= options.candidates or row["key"] in self._without:
                continue
            one: PendingTask | None = None
            with self._outlived(row["key"]):
                every = tuple(islice(candidates(graph_of(row), self._device), options.candidates))
                if done < len(every):
                    one = PendingTask(task_of(row, options.target), row["number"], done, every[done:])
            if one is not None:
                yield one

    @contextmanager
    def _outlived(self, key: str) -> Iterator[None]:
        """A context manager that turns an error of one task into a row for this task. Errors of the machine are
        raised.
        """
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

    def _judge(self, one: PendingTask) -> None:
        if not self._ready:
            self._device, self._ready = self._workers.start(), True
        job = EvaluationJob(one.task, tuple((candidate, Tier.quick) for candidate in one.candidates))
        began, known, judged = time.monotonic(), list[float](), False
        with self._outlived(one.task.key):
            self._worker.do(job, lambda: known.append(time.monotonic()))
            judged, self._failed = True, 0
        if not judged:
            self._worker.renew()
        elif job.opened is None and not any(job.found):
            self._add(one.task.key, "unopened", job.why)
        else:
            opened: float | None = round(known[0] - began, 4)
            for number, (candidate, evaluation) in enumerate(zip(one.candidates, job.found, strict=True), one.first):
                self._lines.add(label_of(one.task.key, number, candidate, evaluation, self._device, opened))
                opened = None
        self._worker.require()

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
    """The generator's candidates: its initial schedules, then their neighbours, then the neighbours of these and so on.
    Candidates with equal text are given once. Raises Unsupported.
    """
    schedules = dict.fromkeys(initial(graph, device.target, device))
    texts = set[str]()
    waiting, known = deque(schedules), deque(schedules)
    while known:
        while waiting:
            candidate = emit(graph, waiting.popleft())
            if candidate.hash() not in texts:
                texts.add(candidate.hash())
                yield candidate
        # Neighbours are computed late: each is emitted once to check that it fits, and most are never asked for.
        fresh = [other for other in neighbours(graph, known.popleft(), device) if other not in schedules]
        schedules |= dict.fromkeys(fresh)
        waiting.extend(fresh)
        known.extend(fresh)


def of_machine(error: Exception) -> bool:
    """Whether the next task would fail in the same way. A UsageError concerns the task."""
    if isinstance(error, KernelAssistantError):
        return not isinstance(error, UsageError)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SCARCE)


def task_of(row: dict[str, Any], target: str) -> Task:
    """A row of the shards as a Task of reinforcement learning."""
    path = f"/nowhere/task_{row['key']}.py"
    described = build_task(path, target=target, numerics=Numerics.kernelbench, text=row["text"])
    graph = graph_of(row)
    return Task(row["key"], row["operator_count"], graph, canonical(graph), described)
