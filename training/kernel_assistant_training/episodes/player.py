"""One process that plays lessons: a warm worker, a compiler that works ahead, two files."""

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

import msgspec

from kernel_assistant.agent.stops import Stop
from kernel_assistant.environment.ceilings import with_ceilings
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import Worker
from kernel_assistant.errors import DeviceError, MissingError, UsageError, WorkerError
from kernel_assistant.records import Baseline, Candidate, Numerics
from kernel_assistant.records.canonical import canonical
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.source.build import build_task
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.episodes.ahead import AheadCompiler
from kernel_assistant_training.episodes.client import LessonFailed
from kernel_assistant_training.episodes.lesson import Lesson, lesson
from kernel_assistant_training.episodes.lines import Episode, Failure, Lines, as_document, read_lines
from kernel_assistant_training.episodes.play import Played, play
from kernel_assistant_training.episodes.subject import Subject, subjects
from kernel_assistant_training.episodes.turns import DeviceTurn
from kernel_assistant_training.synth import module_text

#: Tasks whose candidates are built before their turn comes.
AHEAD = 4
CALIBRATIONS = 3


@dataclass(frozen=True)
class Options:
    """`part` of `parts` processes, `builders` compilers at a time in each. Each ends at `until`, a time of
    `time.monotonic`, or after `lessons`; `cache` has the device's bandwidths."""

    target: str
    out: Path
    seed: int
    until: float
    python: str
    cache: Path
    part: int = 0
    parts: int = 1
    builders: int = 1
    faults: float = 0.25
    estimated_compile: float = 0.5
    in_full: float = 0.15
    lessons: int = 1 << 62


@dataclass(frozen=True)
class Waiting:
    """A lesson whose candidates are being built."""

    subject: Subject
    lesson: Lesson
    candidates: list[Candidate]
    random: Random


class Player:
    """Plays until the time is over. `counts` says what became of the lessons."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.counts: Counter[str] = Counter()
        name = f"{options.target}-{options.part:02}.jsonl"
        self._episodes = Lines(options.out / f"episodes-{name}")
        self._failures = Lines(options.out / f"failures-{name}")
        self._known, self._first = _progress(options.out, options.target)
        self._cancel = threading.Event()
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-assistant-episodes-"))
        # Devices are numbered as the driver numbers them.
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        self._worker = Worker(options.python, log=options.out / f"worker-{options.part:02}.log", env=order)
        self._worker.start(self._cancel)
        device = _device(options)
        self._turn = DeviceTurn(options.out / f"device-{device.index}.lock")
        self._device = self._with_ceilings(device)
        self._compiler = AheadCompiler(
            self._device, choose("auto"), self._folder, self._cancel, threads=options.builders
        )

    def run(self) -> None:
        waiting: deque[Waiting] = deque()
        for one in islice(self._lessons(), self.options.lessons):
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
        """The device with its bandwidths: prompts and observations name the floor. Raises MissingError."""
        for _ in range(CALIBRATIONS):
            with self._turn:
                found = with_ceilings(device, self._worker, self.options.cache, self._cancel)
            if found.copy_bandwidth:
                return found
        raise MissingError("the device is too busy to measure its bandwidth", "try again when less is running")

    def _lessons(self) -> Iterator[Waiting]:
        """Those that were not played before."""
        options = self.options
        stream = subjects(
            options.seed,
            options.target,
            first=self._first,
            part=options.part,
            parts=options.parts,
            broken=lambda number, key, why: self._add(Failure(number=number, key=key, what="teacher", message=why)),
        )
        for subject in stream:
            random = Random(f"lesson {options.seed} {subject.number}")
            planned = lesson([answer.source for answer in subject.answers], options.target, random, options.faults)
            if (subject.key, planned.behaviours) not in self._known:
                self._known.add((subject.key, planned.behaviours))
                yield Waiting(subject, planned, subject.candidates(planned, options.target), random)

    def _next(self, waiting: deque[Waiting]) -> None:
        one = waiting.popleft()
        self._play(one)
        self._compiler.forget(one.candidates)

    def _play(self, one: Waiting) -> None:
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
                cache_dir=self.options.cache,
                cancel=self._cancel,
                emit=lambda event: None,
                compiler=self._compiler,
                measuring=self._turn,
                quick_only=True,
            ) as environment:
                self._converse(one, environment, text, {"open": time.perf_counter() - began})
        except LessonFailed as failed:
            said = failed.saying
            what = "harmless" if said.fault and not failed.refused else "answer"
            self._fail(one, what, failed.observation, source=said.source, fault=said.fault, task=text)
        except UsageError as error:
            self._fail(one, "open", error.cause, task=text)
        except Stop as stop:
            self._fail(one, "stopped", stop.reason.value, task=text)
        except (WorkerError, DeviceError) as error:
            self._fail(one, "worker", error.cause, task=text)
            if not self._worker.alive:
                self._worker.restart(self._cancel)

    def _converse(self, one: Waiting, environment: Environment, text: str, spent: dict[str, float]) -> None:
        if canonical(environment.graph).text() != one.subject.task.text():
            self._fail(one, "graph", canonical(environment.graph).text(), task=text)
            return
        began = time.perf_counter()
        baseline = environment.baseline(compiled=False)
        estimated = one.random.random() < self.options.estimated_compile
        if estimated:
            guess = _compile_estimate(baseline, len(environment.graph.nodes), one.random)
            baseline = msgspec.structs.replace(baseline, compile_ms=guess)
        spent["baseline"] = time.perf_counter() - began
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            played = play(environment, one.lesson, baseline, Path(folder))
        spent |= {**played.seconds(), "playing": time.perf_counter() - began - spent["baseline"]}
        if one.random.random() < self.options.in_full:
            verdict = environment.verify_in_full(played.best)
            if not verdict.correct:
                self._fail(one, "full", verdict.message, source=played.best_source, task=text)
                return
        self._keep(one, played, "estimated" if estimated else "none", spent)

    def _keep(self, one: Waiting, played: Played, compile_from: str, spent: dict[str, float]) -> None:
        losses = iter(played.losses())
        said = [saying for saying, _ in played.turns]
        behaviours = Lesson(tuple(said[:-1])).behaviours
        self._known.add((one.subject.key, behaviours))
        self._episodes.add(
            Episode(
                number=one.subject.number,
                key=one.subject.key,
                split="train",
                target=self.options.target,
                device=self._device.arch,
                level=one.subject.level,
                behaviours=behaviours,
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
    """Of several GPUs, those of a kind, each process has its own in turn. Raises MissingError where there is none."""
    gpus = cuda.gpus() if options.target == "cuda" else []
    return gpus[options.part % len(gpus)] if len(gpus) > 1 else detect(options.target)


def _progress(out: Path, target: str) -> tuple[set[tuple[str, tuple[str, ...]]], int]:
    """(key, behaviours) of all episodes of all processes so far, and the number of the task to go on with."""
    known, first = set(), 0
    for path in sorted(out.glob(f"episodes-{target}-*.jsonl")):
        for episode in read_lines(path, Episode):
            known.add((episode.key, episode.behaviours))
            first = max(first, episode.number + 1)
    for path in sorted(out.glob(f"failures-{target}-*.jsonl")):
        first = max([first, *(failure.number + 1 for failure in read_lines(path, Failure))])
    return known, first


def _compile_estimate(baseline: Baseline, operators: int, random: Random) -> float:
    """What torch.compile might take: eager's time, shared by some of the operators, hardly ever below the floor."""
    fused = baseline.eager_ms * random.uniform(0.8, 1.1) / math.pow(operators, random.uniform(0.4, 0.9))
    return max(fused, baseline.floor_ms * random.uniform(0.98, 1.2))
