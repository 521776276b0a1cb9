"""Judges answers: one open task at a time in a process, candidates built ahead, a row for each task."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import held_out_generator
from bench.held_out_answers import Answer
from bench.held_out_device import ORDER, devices, known_device
from bench.held_out_tasks import Task
from kernel_assistant.agent.calls import code_of
from kernel_assistant.agent.directives import UNITS, DirectiveError, candidate_from
from kernel_assistant.environment.builds.compile import Binary
from kernel_assistant.environment.device_locks import lock_of
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import Baseline, Candidate, Evaluation, Numerics, Tier
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import Record
from kernel_assistant.records.evaluation import measurably_faster
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.source.build import build_task
from kernel_assistant.worker.device_lock import DeviceLock
from kernel_assistant_training.episodes.lines import EpisodeFile
from kernel_assistant_training.evaluation.ahead import AheadCompiler
from kernel_assistant_training.evaluation.threads import part_of_gpu
from kernel_assistant_training.synth import module_text

#: Tasks whose candidates are built before they are judged.
AHEAD = 4
#: The outcome of an answer after a correct one.
NOT_JUDGED = "not_judged"
#: A ratio of times that the quick tier can tell from 1.
CLEAR = 1.03
HEADROOM = 1.1


@dataclass(frozen=True)
class Options:
    """Options of process `part` of `parts`. `out` gets rows-TARGET-PART.jsonl and the locks, and has the device's
    bandwidths. `until` is a time of `time.monotonic`. It measures on `cores` and builds on `builder_cores`, on all if
    they are empty; with `cores` it does not wait for other processes. `sandbox` as for the command line."""

    target: str
    out: Path
    until: float
    part: int = 0
    parts: int = 1
    builders: int = 1
    cores: tuple[int, ...] = ()
    builder_cores: tuple[int, ...] = ()
    compiled: bool = False
    generator: bool = True
    sandbox: str = "auto"


@dataclass(frozen=True)
class Subject:
    """A task with its answers: a candidate for each answer, or why there is none. If `thorough`, all candidates are
    judged, not only those up to the first correct one, and the generator's too."""

    task: Task
    answers: tuple[Answer, ...]
    candidates: tuple[Candidate | str, ...]
    thorough: bool

    @property
    def different(self) -> list[Candidate]:
        """The distinct candidates, in order."""
        by_hash = {one.hash(): one for one in self.candidates if isinstance(one, Candidate)}
        return list(by_hash.values())

    @property
    def surely_judged(self) -> list[Candidate]:
        """The candidates that are built ahead."""
        return self.different if self.thorough else self.different[:1]


def subject(task: Task, answers: Sequence[Answer], target: str, *, thorough: bool) -> Subject:
    candidates = tuple(_candidate(task, answer.text, target) for answer in answers)
    return Subject(task, tuple(answers), candidates, thorough)


def _candidate(task: Task, text: str, target: str) -> Candidate | str:
    """The candidate of an answer, read as in the compact profile, or why there is none."""
    code = code_of(text)
    if code is None:
        return "no_code"
    try:
        return candidate_from({"kernel" + UNITS[target][0]: code}, task.graph, target, canonical(task.graph))
    except DirectiveError as error:
        return f"plan {error}"


class Row(Record, frozen=True, kw_only=True):
    """The results for one task, as plain data for the page."""

    key: str
    found: dict[str, Any]


class Judge:
    """Owns a worker, a compiler and a lock."""

    def __init__(self, options: Options) -> None:
        self._options = options
        if options.cores:
            os.sched_setaffinity(0, options.cores)
        self._cancel = threading.Event()
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-assistant-held-out-"))
        env = ORDER | (part_of_gpu(options.parts, len(devices("cuda"))) if options.target == "cuda" else {})
        self._worker = WorkerClient(sys.executable, log=options.out / f"worker-{options.part:02}.log", env=env)
        self._worker.start(self._cancel)
        self._device = known_device(options.target, options.out, options.part)
        # With cores of its own it needs no shared lock.
        self._lock = DeviceLock(options.out / f"device-{options.part}") if options.cores else lock_of(self._device)
        self._compiler = AheadCompiler(
            self._device,
            choose(options.sandbox),
            self._folder,
            self._cancel,
            threads=options.builders,
            cores=options.builder_cores,
        )

    def run(self, subjects: Sequence[Subject], lines: EpisodeFile) -> None:
        """Writes a row for each subject, until the time is over. An error of a task is recorded in its row."""
        waiting = deque(subjects)
        for one in list(waiting)[:AHEAD]:
            self._compiler.begin(one.surely_judged)
        while waiting and time.monotonic() < self._options.until:
            one = waiting.popleft()
            if len(waiting) >= AHEAD:
                self._compiler.begin(waiting[AHEAD - 1].surely_judged)
            lines.add(Row(key=one.task.key, found=self._row(one)))
            self._compiler.forget(one.different)

    def close(self) -> None:
        self._cancel.set()
        self._compiler.close()
        self._worker.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _row(self, one: Subject) -> dict[str, Any]:
        task, began = one.task, time.perf_counter()
        row: dict[str, Any] = {
            "key": task.key,
            "split": task.split,
            "level": task.level,
            "taught": task.taught,
            "graph": canonical(task.graph).text(),
            "thorough": one.thorough,
            "tokens": sum(answer.tokens for answer in one.answers),
            "outcome": "not_opened",
        }
        try:
            described = build_task(
                f"/nowhere/task_{task.key}.py",
                target=self._options.target,
                numerics=Numerics.kernelbench,
                text=module_text(task.graph),
            )
            with open_environment(
                described,
                device=self._device,
                worker=self._worker,
                sandbox_mode=self._options.sandbox,
                cache_dir=self._options.out,
                cancel=self._cancel,
                emit=lambda event: None,
                compiler=self._compiler,
                lock=self._lock,
                most=Tier.full if self._options.compiled and one.thorough else Tier.quick,
            ) as environment:
                row |= {"outcome": "broken", "open_s": time.perf_counter() - began}
                traced = canonical(environment.graph).text()
                if traced != row["graph"]:
                    row |= {"outcome": "not_opened", "why": f"another graph: {traced}"}
                else:
                    row |= self._judged(one, environment, row["open_s"])
        except Exception as error:  # noqa: BLE001 - one bad task is a row that says so
            row["why"] = f"{type(error).__name__}: {error}"
            if not self._worker.alive:
                self._worker.restart(self._cancel)
        return {**row, "seconds": time.perf_counter() - began}

    def _judged(self, one: Subject, environment: Environment, opened: float) -> dict[str, Any]:
        began, waited = time.perf_counter(), environment.waited
        baseline = environment.baseline(compiled=False)
        stages = Counter({"open": opened, "baseline": time.perf_counter() - began})
        verified = _Verified(environment)
        mine = self._quickly(one, environment, verified)
        attempts = [
            {"outcome": "plan" if each != "no_code" else each, "why": each}
            if isinstance(each, str)
            else _attempt(mine.get(each.hash()))
            for each in one.candidates
        ]
        first = one.candidates[0]
        best = verified.fastest([(each, mine[each.hash()]) for each in one.different if each.hash() in mine])
        row: dict[str, Any] = {
            "outcome": "judged",
            "eager_ms": baseline.eager_ms,
            "floor_ms": baseline.floor_ms,
            "attempts": attempts,
            "different": len(one.different),
            "first": isinstance(first, Candidate) and verified(first, mine[first.hash()]),
            "best": best is not None,
            "best_ms": _ms(mine[best.hash()]) if best else None,
        }
        theirs: list[tuple[Candidate, Evaluation]] = []
        if self._options.generator and one.thorough:
            why, theirs = held_out_generator.play(environment, baseline, len(one.answers))
            other = verified.fastest(theirs)
            row["generator"] = {
                "why": why,
                "evaluations": len(theirs),
                "first": bool(theirs) and verified(*theirs[0]),
                "best": other is not None,
                "best_ms": next((_ms(evaluation) for each, evaluation in theirs if each is other), None),
            }
            ms = row["generator"]["best_ms"]
            if best is not None and (ms is None or row["best_ms"] * CLEAR <= ms):
                row["win"] = {
                    "outside": held_out_generator.is_outside(
                        best, environment.graph, environment.device, (each for each, _ in theirs)
                    ),
                    "source": next(iter(best.sources.values())),
                }
        for evaluation in (*mine.values(), *(evaluation for _, evaluation in theirs)):
            stages.update(evaluation.seconds)
        row["stages"] = {**stages, "full verify": verified.seconds, "waiting": environment.waited - waited}
        return row | (self._speed(environment, best) if self._options.compiled and one.thorough else {})

    def _quickly(self, one: Subject, environment: Environment, verified: _Verified) -> dict[str, Evaluation]:
        """Evaluations in the quick tier by hash: of all candidates, or of the candidates up to the first correct
        one.
        """
        evaluations: dict[str, Evaluation] = {}
        for number, each in enumerate(one.different):
            if number == 1:
                self._compiler.begin(one.different)
            evaluations[each.hash()] = environment.evaluate([each], Tier.quick)[0]
            if not one.thorough and verified(each, evaluations[each.hash()]):
                break
        return evaluations

    def _speed(self, environment: Environment, best: Candidate | None) -> dict[str, Any]:
        """Confirms the best candidate against torch.compile, in the full tier."""
        baseline: Baseline = environment.baseline(compiled=True)
        assert baseline.compile_ms is not None
        room = bool(baseline.floor_ms) and baseline.compile_ms >= HEADROOM * baseline.floor_ms
        evaluation = environment.confirm(best) if best and room else None
        timing = evaluation.timing if evaluation and evaluation.correct else None
        return {
            "compile_ms": baseline.compile_ms,
            "headroom": room,
            "speedup_vs_compile": timing.speedup_vs_compile if timing else None,
            "faster": timing is not None and measurably_faster(timing.speedup_vs_compile, timing.speedup_vs_compile_ci),
        }


class _Verified:
    """Whether candidates pass the inputs and shapes of the full tier; each is checked once."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._known: dict[str, bool] = {}
        self.seconds = 0.0

    def __call__(self, candidate: Candidate, quick: Evaluation) -> bool:
        key = candidate.hash()
        if key not in self._known:
            self._known[key] = quick.correct and self._in_full(candidate)
        return self._known[key]

    def fastest(self, judged: Sequence[tuple[Candidate, Evaluation]]) -> Candidate | None:
        """The verified candidate that is fastest in the quick tier; None if there is none."""
        right = sorted((one for one in judged if one[1].correct), key=lambda one: _ms(one[1]) or 0.0)
        return next((candidate for candidate, quick in right if self(candidate, quick)), None)

    def _in_full(self, candidate: Candidate) -> bool:
        built, began = self._environment.build(candidate), time.perf_counter()
        if not isinstance(built, Binary):
            return False
        evaluation = self._environment.judge_binary(candidate, built, profile=False)
        self.seconds += time.perf_counter() - began
        return evaluation.correct_everywhere


def _attempt(evaluation: Evaluation | None) -> dict[str, Any]:
    if evaluation is None:
        return {"outcome": NOT_JUDGED}
    document: dict[str, Any] = {"outcome": evaluation.outcome.value, "seconds": sum(evaluation.seconds.values())}
    return document | ({"ms": _ms(evaluation)} if evaluation.correct else {"why": evaluation.message[:200]})


def _ms(evaluation: Evaluation) -> float | None:
    return evaluation.timing.candidate_ms if evaluation.timing else None


def judge_part(options: Options, subjects: Sequence[Subject]) -> None:
    """Judges the subjects; the main function of a process."""
    judge, lines = Judge(options), EpisodeFile(options.out / f"rows-{options.target}-{options.part:02}.jsonl")
    try:
        judge.run(subjects, lines)
    finally:
        judge.close()
        lines.close()
