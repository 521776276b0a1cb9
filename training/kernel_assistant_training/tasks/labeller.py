"""Evaluates the generator's candidates for tasks in one process. Its worker stays alive, and builders compile
candidates before the worker needs them."""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from kernel_assistant.config import resolve
from kernel_assistant.errors import InternalError, KernelAssistantError, UsageError
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import Candidate, Evaluation, OpGraph, Tier
from kernel_assistant.session.training_run import TrainingCommand, command_of
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.episodes.lines import EpisodeFile
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.tasks import Task, of_graph
from kernel_assistant_training.evaluation.worker import EvaluationJob
from kernel_assistant_training.evaluation.workers import EvaluationWorkers
from kernel_assistant_training.options.data import LabelArguments
from kernel_assistant_training.tasks.label_rows import Label, label_of, rows_of
from kernel_assistant_training.tasks.shards import graph_of, read_rows

LOOK_SECONDS = 0.5
#: If this many tasks fail in a row, the cause is not the tasks.
MOST_FAILED = 20
#: Error numbers of exhausted resources, which would fail other tasks as well.
_SCARCE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS})


@dataclass(frozen=True)
class PendingTask:
    """A task whose `candidates`, which are numbered from `first` on, are being built in the background."""

    task: Task
    first: int
    candidates: tuple[Candidate, ...]


class Labeller(EvaluationWorkers):
    """Evaluates the tasks that belong to process `part`, with one worker. The tasks are divided among the processes by
    their keys; results are appended to a file of the process."""

    def __init__(self, asked: LabelArguments, part: int) -> None:
        self._asked, self._part, self._ready, self._failed = asked, part, False, 0
        self._folder = folder = asked.out / "labels"
        self._lines = EpisodeFile(folder / f"labels-{part:02}.jsonl")
        self._done, self._without = rows_of(folder)
        super().__init__(
            WorkerOptions(
                target=asked.target,
                python=asked.python,
                logs=folder,
                cache=resolve()[0].cache_dir,
                first=part,
                total=asked.processes,
                builders=asked.builders,
                sandbox=asked.sandbox,
            )
        )

    def close(self) -> None:
        super().close()
        self._lines.close()

    def run(self) -> None:
        """Evaluates all tasks of this process, until the time is over or a stop is requested. Raises MissingError if no
        worker can be started."""
        until = time.monotonic() + self._asked.seconds
        for one in self.ahead(self._tasks(), lambda: self._goes_on(until)):
            self._judge(one)

    def _goes_on(self, until: float) -> bool:
        """Returns whether to continue: False after the time `until` (of `time.monotonic`) or if a stop is requested.
        Waits during a pause."""
        while (command := command_of(self._folder)) is TrainingCommand.pause:
            time.sleep(LOOK_SECONDS)
        return command is not TrainingCommand.stop and time.monotonic() < until

    def _tasks(self) -> Iterator[PendingTask]:
        """Yields this process's tasks of the training split, each with its candidates that have no row yet."""
        asked = self._asked
        for row in read_rows(asked.tasks or asked.out)[: asked.tasks_most]:
            if row["split"] != "train" or int(row["key"][:8], 16) % asked.processes != self._part:
                continue
            done = self._done[row["key"]]
            if done >= asked.candidates or row["key"] in self._without:
                continue
            one: PendingTask | None = None
            with self._outlived(row["key"]):
                graph = graph_of(row)
                every = tuple(islice(candidates(graph, self.device), asked.candidates))
                if done < len(every):
                    task = of_graph(graph, asked.target, row["operator_count"], text=row["text"])
                    one = PendingTask(task, done, every[done:])
            if one is not None:
                yield one

    @contextmanager
    def _outlived(self, key: str) -> Iterator[None]:
        """A context manager that turns an error of one task into a row for this task. Raises errors of the machine, and
        InternalError after `MOST_FAILED` failed tasks in a row.
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
            self.start()
            self._ready = True
        job = EvaluationJob(one.task, tuple((candidate, Tier.quick) for candidate in one.candidates))
        began, opened, judged = time.monotonic(), None, False
        with self._outlived(one.task.key):
            for answer in self.workers[0].judge(job):
                job.add(answer)
                opened = opened or round(time.monotonic() - began, 4)
            job.give_up()
            judged, self._failed = True, 0
        if not judged:
            self.workers[0].renew()
        elif job.opened is None and not any(job.evaluations):
            self._add(one.task.key, "unopened", job.why)
        else:
            # Of a task that an earlier run left half done, the fastest candidate is not known here.
            again = {} if one.first else self._again(job)
            pairs = zip(one.candidates, job.evaluations, strict=True)
            for index, (candidate, evaluation) in enumerate(pairs):
                number, second = one.first + index, again.get(index)
                self._lines.add(label_of(one.task.key, number, candidate, evaluation, self.device, opened, second))
                opened = None
        self.workers[0].require()

    def _again(self, job: EvaluationJob) -> dict[int, Evaluation]:
        """Evaluates the job's first candidate and its fastest one once more, on the task that is still open. Returns
        the evaluations by the candidates' index; none if the first candidate has no time, or after an error that is not
        the machine's."""
        times = {index: one.timing.ranked_ms for index, one in enumerate(job.evaluations) if one and one.timing}
        if 0 not in times:
            return {}
        chosen = list(dict.fromkeys((0, min(times, key=times.__getitem__))))
        second = EvaluationJob(job.task, tuple(job.candidates[index] for index in chosen))
        try:
            self.workers[0].do(second)
        except Exception as error:
            if of_machine(error):
                raise
            self.workers[0].renew()
        return {index: one for index, one in zip(chosen, second.evaluations, strict=False) if one is not None}

    def _add(self, key: str, outcome: str, message: str) -> None:
        self._lines.add(
            Label(
                task=key,
                number=0,
                target=self._asked.target,
                device=self.device.arch,
                outcome=outcome,
                message=message,
            )
        )


def candidates(graph: OpGraph, device: DeviceFacts) -> Iterator[Candidate]:
    """Yields the generator's candidates: its initial schedules, then their neighbours (schedules with one parameter
    changed), then the neighbours of these and so on. Candidates with equal sources occur once. Raises Unsupported if
    the generator cannot write the graph."""
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
    """Whether an error concerns the machine, so that the next task would fail in the same way. A UsageError concerns
    the task."""
    if isinstance(error, KernelAssistantError):
        return not isinstance(error, UsageError)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SCARCE)
