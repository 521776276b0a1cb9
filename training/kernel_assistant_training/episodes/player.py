"""One process that plays lessons, several to a task: a warm worker, a compiler that works ahead, two files."""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import click
import msgspec

from kernel_assistant.agent.stops import Stop
from kernel_assistant.environment.ceilings import keep_ceilings, known_ceilings, measure_ceilings
from kernel_assistant.environment.device_locks import lock_of
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import Worker
from kernel_assistant.errors import DeviceError, UsageError, WorkerError
from kernel_assistant.records import Baseline, Candidate, Numerics
from kernel_assistant.records.canonical import canonical
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.source.build import build_task
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect
from kernel_assistant.worker.device_lock import DeviceLock
from kernel_assistant_training.bandwidth import TRIES, best_of
from kernel_assistant_training.episodes.ahead import AheadCompiler
from kernel_assistant_training.episodes.client import LessonFailed
from kernel_assistant_training.episodes.judged import Judged
from kernel_assistant_training.episodes.lesson import FINISH, Lesson, Saying, lessons
from kernel_assistant_training.episodes.lines import Episode, Failure, Lines, as_document
from kernel_assistant_training.episodes.options import Options
from kernel_assistant_training.episodes.play import Played, play
from kernel_assistant_training.episodes.seen import identity, progress
from kernel_assistant_training.episodes.subject import Subject, subjects
from kernel_assistant_training.episodes.threads import part_of_gpu
from kernel_assistant_training.nominal import nominal_baseline
from kernel_assistant_training.synth import module_text

#: Tasks whose candidates are built before their turn comes.
AHEAD = 4


@dataclass(frozen=True)
class Waiting:
    """Lessons about a task, whose candidates are being built."""

    subject: Subject
    lessons: list[Lesson]
    candidates: list[Candidate]
    random: Random


class Player:
    """Plays until the time is over. `counts` says what became of the lessons."""

    def __init__(self, options: Options) -> None:
        began = time.monotonic()
        self.options = options
        self.counts: Counter[str] = Counter()
        name = f"{options.target}-{options.part:02}.jsonl"
        self._episodes = Lines(options.out / f"episodes-{name}")
        self._failures = Lines(options.out / f"failures-{name}")
        self._known, self._first = progress(options.out, options.target)
        self._cancel = threading.Event()
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-assistant-episodes-"))
        # Devices are numbered as the driver numbers them.
        share = part_of_gpu(options.parts, len(cuda.gpus())) if options.target == "cuda" else {}
        env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **share}
        self._worker = Worker(options.python, log=options.out / f"worker-{options.part:02}.log", env=env)
        self._worker.start(self._cancel)
        started = time.monotonic() - began
        device = _device(options)
        self._cache = options.cache
        # Who has cores of its own waits for nobody.
        self._lock = DeviceLock(options.out / f"device-{options.part}") if options.own_device else lock_of(device)
        self._device = self._with_ceilings(device)
        self._compiler = AheadCompiler(
            self._device,
            choose("auto"),
            self._folder,
            self._cancel,
            threads=options.builders,
            cores=options.builder_cores,
        )
        ready = time.monotonic() - began
        click.echo(f"process {options.part}: worker after {started:.1f} s, bandwidth after {ready:.1f} s", err=True)

    def run(self) -> None:
        waiting: deque[Waiting] = deque()
        for one in islice(self._tasks(), self.options.tasks):
            waiting.append(one)
            self._compiler.begin(one.candidates)
            if len(waiting) > AHEAD:
                self._next(waiting)
            if time.monotonic() >= self.options.until:
                return
        while waiting and time.monotonic() < self.options.until:
            self._next(waiting)

    def close(self) -> None:
        self._cancel.set()
        self._compiler.close()
        self._worker.kill()
        self._episodes.close()
        self._failures.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _with_ceilings(self, device: DeviceFacts) -> DeviceFacts:
        """The device with its bandwidths: prompts and observations name the floor.

        On a machine that is never quiet the best of some measurements counts, in this folder of episodes alone.
        """
        own = self.options.out / "bandwidth"
        tries = []
        for _ in range(TRIES):
            with self._lock.exclusive():
                for folder in (self.options.cache, own):
                    known = known_ceilings(device, folder)
                    if known is not None:
                        self._cache = folder
                        return known
                found, quiet = measure_ceilings(device, self._worker, self._cancel)
                if quiet:
                    keep_ceilings(found, self._cache)
                    return found
            tries.append(found)
        self._cache = own
        best = best_of(device, tries)
        keep_ceilings(best, own)
        return best

    def _tasks(self) -> Iterator[Waiting]:
        """With the lessons that were not played before."""
        options = self.options
        stream = subjects(
            options.seed,
            options.target,
            first=self._first,
            part=options.part,
            parts=options.parts,
            narrow=options.narrow,
            broken=lambda number, key, why: self._add(Failure(number=number, key=key, what="teacher", message=why)),
        )
        for subject in stream:
            random = Random(f"lesson {options.seed} {subject.number}")
            sources = [answer.source for answer in subject.answers]
            planned = [
                one
                for one in lessons(sources, options.target, random, options.lessons, options.faults)
                if identity(subject.key, [*(saying.text for saying in one.sayings), FINISH]) not in self._known
            ]
            if planned:
                candidates = [found for one in planned for found in subject.candidates(one, options.target)]
                yield Waiting(subject, planned, candidates, random)

    def _next(self, waiting: deque[Waiting]) -> None:
        one = waiting.popleft()
        self._open(one)
        self._compiler.forget(one.candidates)

    def _open(self, one: Waiting) -> None:
        began = time.perf_counter()
        text = module_text(one.subject.graph)
        path = f"/nowhere/task_{one.subject.number}.py"
        task = build_task(path, target=self.options.target, numerics=Numerics.kernelbench, text=text)
        try:
            with open_environment(
                task,
                device=self._device,
                worker=self._worker,
                sandbox_mode="auto",
                cache_dir=self._cache,
                cancel=self._cancel,
                emit=lambda event: None,
                compiler=self._compiler,
                lock=self._lock,
                quick_only=True,
            ) as environment:
                self._teach(one, environment, text, {"open": time.perf_counter() - began})
        except UsageError as error:
            self._fail(one, "open", error.cause, task=text)
        except (WorkerError, DeviceError) as error:
            self._fail(one, "worker", error.cause, task=text)
            if not self._worker.alive:
                self._worker.restart(self._cancel)

    def _teach(self, one: Waiting, environment: Environment, text: str, spent: dict[str, float]) -> None:
        """All lessons of a task; the first line of them has the seconds `spent` on opening it."""
        if canonical(environment.graph).text() != one.subject.task.text():
            self._fail(one, "graph", canonical(environment.graph).text(), task=text)
            return
        began, waited = time.perf_counter(), environment.waited
        measured = environment.baseline(compiled=False)
        spent["baseline"] = time.perf_counter() - began
        if self.options.clock == "nominal":
            measured = nominal_baseline(environment.graph)
        judged = Judged(environment, self.options.clock)
        failed_before: set[Saying] = set()
        in_full: dict[str, str] | None = {} if one.random.random() < self.options.in_full else None
        for planned in one.lessons:
            if time.monotonic() >= self.options.until:
                return
            if failed_before.intersection(planned.sayings):
                continue
            estimated = one.random.random() < self.options.estimated_compile
            guess = _compile_estimate(measured, len(environment.graph.nodes), one.random) if estimated else None
            baseline = msgspec.structs.replace(measured, compile_ms=guess)
            began = time.perf_counter()
            try:
                with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                    played = play(judged, planned, baseline, Path(folder))
            except LessonFailed as failed:
                said = failed.saying
                failed_before.add(said)
                what = "harmless" if said.fault and not failed.refused else "answer"
                self._fail(one, what, failed.observation, source=said.source, fault=said.fault, task=text)
                spent["failed"] = spent.get("failed", 0.0) + time.perf_counter() - began
                continue
            except Stop as stop:
                self._fail(one, "stopped", stop.reason.value, task=text)
                continue
            spent |= {**played.seconds(), "playing": time.perf_counter() - began}
            spent["waiting"], waited = environment.waited - waited, environment.waited
            best = played.best.hash()
            if in_full is not None and best not in in_full:
                verdict = environment.verify_in_full(played.best)
                in_full[best] = "" if verdict.correct else verdict.message
            if in_full is not None and in_full[best]:
                self._fail(one, "full", in_full[best], source=played.best_source, task=text)
                continue
            self._keep(one, played, "estimated" if estimated else "none", spent)
            spent = {}

    def _keep(self, one: Waiting, played: Played, compile_from: str, spent: dict[str, float]) -> None:
        losses = iter(played.losses())
        said = [saying for saying, _ in played.turns]
        conversation = identity(one.subject.key, [saying.text for saying in said])
        if conversation in self._known:  # both ended early, at the floor
            self.counts["repeated"] += 1
            return
        self._known.add(conversation)
        self._episodes.add(
            Episode(
                number=one.subject.number,
                key=one.subject.key,
                split="train",
                target=self.options.target,
                device=self._device.arch,
                level=one.subject.level,
                behaviours=Lesson(tuple(said[:-1])).behaviours,
                families=one.subject.answers[0].families,
                outcome="correct",
                turns=tuple(saying.kind.value for saying in said),
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
        self.counts["episodes"] += 1

    def _fail(
        self, one: Waiting, what: str, message: str, *, source: str = "", fault: str = "", task: str = ""
    ) -> None:
        self._add(
            Failure(
                number=one.subject.number,
                key=one.subject.key,
                what=what,
                message=message,
                families=one.subject.answers[0].families,
                source=source,
                fault=fault,
                task=task,
            )
        )

    def _add(self, failure: Failure) -> None:
        self.counts[failure.what] += 1
        self._failures.add(failure)


def _device(options: Options) -> DeviceFacts:
    """Of several GPUs the processes have one each in turn. Raises MissingError where there is none."""
    gpus = cuda.gpus() if options.target == "cuda" else []
    return gpus[options.part % len(gpus)] if len(gpus) > 1 else detect(options.target)


def _compile_estimate(baseline: Baseline, operators: int, random: Random) -> float:
    """What torch.compile might take: eager's time, shared by some of the operators, hardly ever below the floor."""
    fused = baseline.eager_ms * random.uniform(0.8, 1.1) / math.pow(operators, random.uniform(0.4, 0.9))
    return max(fused, baseline.floor_ms * random.uniform(0.98, 1.2))
