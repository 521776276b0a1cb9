"""Plays several lessons (planned replies, deliberate mistakes included) for each task in one process. The process has
one evaluation worker and writes two files: episodes and failures."""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import click
import msgspec

from kernel_assistant.agent.stops import Stop
from kernel_assistant.config import resolve
from kernel_assistant.environment.session import Environment
from kernel_assistant.errors import DeviceError, UsageError, WorkerError
from kernel_assistant.records import Baseline, Candidate
from kernel_assistant.worker.device_lock import DeviceLock
from kernel_assistant_training.episodes.client import LessonFailed
from kernel_assistant_training.episodes.lines import Episode, EpisodeFile, Failure, as_document, read_lines
from kernel_assistant_training.episodes.play import PlayedLesson, play
from kernel_assistant_training.episodes.subject import LessonTask, subjects
from kernel_assistant_training.evaluation.evaluation_cache import EvaluationCache
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.tasks import Task, of_graph
from kernel_assistant_training.evaluation.worker import OtherGraphError
from kernel_assistant_training.evaluation.workers import EvaluationWorkers
from kernel_assistant_training.lessons.lesson import FINISH, Lesson, PlannedReply, lessons
from kernel_assistant_training.nominal import nominal_baseline
from kernel_assistant_training.options.data import EpisodesArguments
from kernel_assistant_training.synth import module_text
from kernel_assistant_training.synth.narrow import Narrow


@dataclass(frozen=True)
class PendingLessons:
    """The lessons planned for one task, with their candidates, which are being built in the background."""

    subject: LessonTask
    task: Task
    lessons: list[Lesson]
    candidates: list[Candidate]
    random: Random


class LessonRunner(EvaluationWorkers):
    """Plays the lessons of those tasks that belong to process `part`, until `until`, a time of `time.monotonic`. If
    `builder_cores` is given, compilers run on these cores, and no other process may measure on the cores of this
    process."""

    def __init__(self, asked: EpisodesArguments, until: float, part: int, builder_cores: tuple[int, ...]) -> None:
        began = time.monotonic()
        self._asked, self._until, self._part = asked, until, part
        name = f"{asked.target}-{part:02}.jsonl"
        self._episodes = EpisodeFile(asked.out / f"episodes-{name}")
        self._failures = EpisodeFile(asked.out / f"failures-{name}")
        self._known, self._first = progress(asked.out, asked.target)
        super().__init__(
            WorkerOptions(
                target=asked.target,
                python=asked.python,
                logs=asked.out,
                cache=asked.out if asked.clock == "nominal" else resolve()[0].cache_dir,
                first=part,
                total=asked.processes,
                builders=asked.builders,
                builder_cores=builder_cores,
                # A process with cores of its own does not share the device lock.
                lock=DeviceLock(asked.out / f"device-{part}") if builder_cores else None,
            )
        )
        self.start()
        click.echo(f"process {part}: ready after {time.monotonic() - began:.1f} s", err=True)

    def run(self) -> None:
        for one in self.ahead(islice(self._tasks(), self._asked.tasks), self._in_time):
            self._play(one)

    def close(self) -> None:
        super().close()
        self._episodes.close()
        self._failures.close()

    def _in_time(self) -> bool:
        return time.monotonic() < self._until

    def _tasks(self) -> Iterator[PendingLessons]:
        """Yields this process's tasks, each with those of its lessons that no earlier run played."""
        asked = self._asked
        stream = subjects(
            asked.seed,
            asked.target,
            first=self._first,
            part=self._part,
            parts=asked.processes,
            narrow=Narrow.of(asked.only, asked.level),
            broken=lambda number, key, why: self._failures.add(
                Failure(number=number, key=key, what="generator", message=why)
            ),
        )
        for subject in stream:
            random = Random(f"lesson {asked.seed} {subject.number}")
            sources = [answer.source for answer in subject.answers]
            planned = [
                one
                for one in lessons(sources, asked.target, random, asked.lessons, asked.faults)
                if identity(subject.key, [*(reply.text for reply in one.sayings), FINISH]) not in self._known
            ]
            if planned:
                candidates = [candidate for one in planned for candidate in subject.candidates(one, asked.target)]
                task = of_graph(subject.graph, asked.target, subject.level, name=str(subject.number))
                yield PendingLessons(subject, task, planned, candidates, random)

    def _play(self, one: PendingLessons) -> None:
        began = time.perf_counter()
        try:
            environment = self.workers[0].open(one.task)
            self._teach(one, environment, {"open": time.perf_counter() - began})
        except OtherGraphError as error:
            self._fail(one, "graph", error.cause)
        except UsageError as error:
            self._fail(one, "open", error.cause)
        except (WorkerError, DeviceError) as error:
            self._fail(one, "worker", error.cause)
            self.workers[0].renew()
        self.workers[0].require()

    def _teach(self, one: PendingLessons, environment: Environment, spent: dict[str, float]) -> None:
        """Plays all lessons of an open task and stores their episodes or failures. `spent` has the seconds that opening
        the task took ("open"); they count in the first episode that is stored."""
        began, waited = time.perf_counter(), environment.waited
        nominal = self._asked.clock == "nominal"
        measured = nominal_baseline(environment.graph) if nominal else environment.baseline(compiled=False)
        spent["baseline"] = time.perf_counter() - began
        judged = EvaluationCache(environment, self._asked.clock)
        failed_before: set[PlannedReply] = set()
        in_full: dict[str, str] | None = {} if one.random.random() < self._asked.in_full else None
        for planned in one.lessons:
            if not self._in_time():
                return
            if failed_before.intersection(planned.sayings):
                continue
            estimated = one.random.random() < self._asked.estimated_compile
            guess = _compile_estimate(measured, len(environment.graph.nodes), one.random) if estimated else None
            baseline = msgspec.structs.replace(measured, compile_ms=guess)
            began = time.perf_counter()
            try:
                with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                    played = play(judged, planned, baseline, Path(folder))
            except LessonFailed as failed:
                reply = failed.saying
                failed_before.add(reply)
                what = "harmless" if reply.fault and not failed.refused else "answer"
                self._fail(one, what, failed.observation, source=reply.source, fault=reply.fault)
                spent["failed"] = spent.get("failed", 0.0) + time.perf_counter() - began
                continue
            except Stop as stop:
                self._fail(one, "stopped", stop.reason.value)
                continue
            spent |= {**played.seconds(), "playing": time.perf_counter() - began}
            spent["waiting"], waited = environment.waited - waited, environment.waited
            best = played.best.hash()
            if in_full is not None and best not in in_full:
                verdict = environment.verify_in_full(played.best)
                # A training example must be right at every size.
                in_full[best] = "" if verdict.correct_everywhere else verdict.elsewhere or verdict.message
            if in_full is not None and in_full[best]:
                self._fail(one, "full", in_full[best], source=played.best_source)
                continue
            self._keep(one, played, "estimated" if estimated else "none", spent)
            spent = {}

    def _keep(self, one: PendingLessons, played: PlayedLesson, compile_from: str, spent: dict[str, float]) -> None:
        losses = iter(played.losses())
        replies = [reply for reply, _ in played.turns]
        conversation = identity(one.subject.key, [reply.text for reply in replies])
        if conversation in self._known:  # both ended early, at the roofline
            return
        self._known.add(conversation)
        self._episodes.add(
            Episode(
                number=one.subject.number,
                key=one.subject.key,
                split="train",
                target=self._asked.target,
                device=self.device.arch,
                level=one.subject.level,
                behaviours=Lesson(tuple(replies[:-1])).behaviours,
                families=one.subject.answers[0].schedule.forms(),
                outcome="correct",
                turns=tuple(reply.kind.value for reply in replies),
                messages=tuple(
                    as_document(message, next(losses) if message.role == "assistant" else None)
                    for message in played.messages
                ),
                best_ms=played.best_ms,
                eager_ms=played.baseline.eager_ms,
                floor_ms=played.baseline.floor_ms,
                compile_ms=played.baseline.compile_ms,
                compile=compile_from,
                seconds={stage: round(seconds, 4) for stage, seconds in spent.items()},
            )
        )

    def _fail(self, one: PendingLessons, what: str, message: str, *, source: str = "", fault: str = "") -> None:
        self._failures.add(
            Failure(
                number=one.subject.number,
                key=one.subject.key,
                what=what,
                message=message,
                families=one.subject.answers[0].schedule.forms(),
                source=source,
                fault=fault,
                task=module_text(one.subject.graph),
            )
        )


def _compile_estimate(baseline: Baseline, operators: int, random: Random) -> float:
    """Draws a plausible time of torch.compile in milliseconds: the eager time divided by a random power of the number
    of operators, but hardly less than the roofline."""
    fused = baseline.eager_ms * random.uniform(0.8, 1.1) / math.pow(operators, random.uniform(0.4, 0.9))
    return max(fused, baseline.floor_ms * random.uniform(0.98, 1.2))


def identity(key: str, replies: Iterable[str]) -> str:
    """Returns a hash (16 hex digits) that identifies a conversation, computed from its task's key and its replies."""
    return hashlib.sha256("\0".join([key, *replies]).encode()).hexdigest()[:16]


def progress(out: Path, target: str) -> tuple[set[str], int]:
    """Returns the identities (see `identity`) of all episodes of `target` in the folder `out`, and the number of the
    next task to play."""
    known, first = set(), 0
    for path in sorted(out.glob(f"episodes-{target}-*.jsonl")):
        for episode in read_lines(path, Episode):
            replies = [message["content"] for message in episode.messages if message["role"] == "assistant"]
            known.add(identity(episode.key, replies))
            first = max(first, episode.number + 1)
    for path in sorted(out.glob(f"failures-{target}-*.jsonl")):
        first = max([first, *(failure.number + 1 for failure in read_lines(path, Failure))])
    return known, first
