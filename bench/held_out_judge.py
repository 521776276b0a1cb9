"""Judges answers: processes with an evaluation worker each, which write a row for each task."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.held_out_answers import Answers
from bench.held_out_generator import Judged, is_outside, play, quickly
from bench.held_out_tasks import HeldOutTask
from kernel_assistant.agent.calls import code_of
from kernel_assistant.agent.directives import UNITS, DirectiveError, candidate_from
from kernel_assistant.environment.session import Environment
from kernel_assistant.errors import UsageError
from kernel_assistant.records import Candidate, Evaluation
from kernel_assistant.records.codec import Record
from kernel_assistant.records.evaluation import measurably_faster
from kernel_assistant.worker.device_lock import DeviceLock
from kernel_assistant_training.episodes.lines import EpisodeFile
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.processes import own_cores
from kernel_assistant_training.evaluation.tasks import Task, of_graph
from kernel_assistant_training.evaluation.worker import EvaluationWorker
from kernel_assistant_training.evaluation.workers import EvaluationWorkers

#: A ratio of times that the quick tier can tell from 1.
CLEAR = 1.03
HEADROOM = 1.1


class Row(Record, frozen=True, kw_only=True):
    """The results for one task, as plain data for the page."""

    key: str
    found: dict[str, Any]


@dataclass(frozen=True)
class JudgeOptions:
    """Options of a process. It measures on `cores`, on all if there are none; no task is begun after `until`, a time of
    `time.monotonic`. If `thorough`, all answers are judged, not only those up to the first verified one. `generator`
    and `compiled` measure the generator and torch.compile too."""

    workers: WorkerOptions
    until: float
    thorough: bool = False
    generator: bool = False
    compiled: bool = False
    cores: tuple[int, ...] = ()

    def parts(self, count: int, each: int, every: tuple[int, ...]) -> list[JudgeOptions]:
        """The options of `count` processes on the cores `every`. Several on the CPU measure on `each` cores of their
        own and build on the rest; on GPUs they take turns. Raises UsageError if there are too few cores."""
        own = each if self.workers.target == "cpu" and count > 1 else 0
        parts, rest = own_cores(count, own, every)
        builders = max(1, len(rest) // count)
        common = replace(self.workers, total=count, builders=builders, builder_cores=rest if own else ())
        return [replace(self, workers=replace(common, first=part), cores=mine) for part, mine in enumerate(parts)]


@dataclass(frozen=True)
class Subject:
    """A task with its answers: for each a candidate, or why there is none. Of the distinct candidates, `candidates` are
    built ahead and `later` ones if they are needed."""

    asked: HeldOutTask
    task: Task
    tokens: int
    answers: Sequence[Candidate | str]
    candidates: Sequence[Candidate]
    later: Sequence[Candidate]


@dataclass(frozen=True)
class Attempt:
    """A candidate's evaluation in the quick tier and, if it is correct there, its verification in the full tier."""

    candidate: Candidate
    quick: Evaluation
    full: Evaluation | None

    @property
    def verified(self) -> bool:
        return self.full is not None and self.full.correct_everywhere and not self.full.residual

    @property
    def ms(self) -> float | None:
        return self.quick.timing.candidate_ms if self.quick.timing else None


def subject(asked: HeldOutTask, answers: Answers, target: str, *, thorough: bool) -> Subject:
    task = of_graph(asked.graph, target, asked.level, text=asked.text)
    read = [_candidate(task, answer.text, target) for answer in answers.answers]
    different = list({one.hash(): one for one in read if isinstance(one, Candidate)}.values())
    ahead, tokens = len(different) if thorough else 1, sum(answer.tokens for answer in answers.answers)
    return Subject(asked, task, tokens, read, different[:ahead], different[ahead:])


def _candidate(task: Task, text: str, target: str) -> Candidate | str:
    """The candidate of an answer, read as in the compact profile, or why there is none."""
    code = code_of(text)
    if code is None:
        return "no_code"
    try:
        return candidate_from({"kernel" + UNITS[target][0]: code}, task.graph, target, task.canonical)
    except DirectiveError as error:
        return f"plan {error}"


def judge_part(options: JudgeOptions, asked: Sequence[tuple[HeldOutTask, Answers]]) -> None:
    """Judges tasks until the time is over; the main function of a process. Raises MissingError if no worker can be
    started."""
    common, lock = options.workers, None
    if options.cores:
        os.sched_setaffinity(0, options.cores)
        # A process with cores of its own does not share the device lock.
        lock = DeviceLock(common.logs / f"device-{common.first}")
    lines = EpisodeFile(common.logs / f"rows-{common.target}-{common.first:02}.jsonl")
    with EvaluationWorkers(replace(common, lock=lock)) as workers:
        workers.start()
        subjects = (subject(*one, common.target, thorough=options.thorough) for one in asked)
        for one in workers.ahead(subjects):
            if time.monotonic() >= options.until:
                break
            lines.add(Row(key=one.asked.key, found=_row(one, workers.workers[0], options)))
            workers.workers[0].require()
    lines.close()


def _row(one: Subject, worker: EvaluationWorker, options: JudgeOptions) -> dict[str, Any]:
    began = time.perf_counter()
    row: dict[str, Any] = {
        **{name: getattr(one.asked, name) for name in ("key", "split", "level", "writable")},
        "graph": one.task.canonical.text(),
        "thorough": options.thorough,
        "tokens": one.tokens,
        "outcome": "not_opened",
    }
    try:
        environment = worker.open(one.task)
        row |= {"outcome": "broken", "open_s": time.perf_counter() - began}
        row |= _judged(one, environment, options, row["open_s"])
    except Exception as error:  # noqa: BLE001 - one bad task is a row that says so
        row["why"] = f"{type(error).__name__}: {error}"
        if not isinstance(error, UsageError):
            worker.renew()
    return {**row, "seconds": time.perf_counter() - began}


def _judged(one: Subject, environment: Environment, options: JudgeOptions, opened: float) -> dict[str, Any]:
    began, waited = time.perf_counter(), environment.waited
    baseline = environment.baseline(compiled=False)
    stages = Counter({"open": opened, "baseline": time.perf_counter() - began})
    mine, theirs = list(_mine(one, environment, options)), list[Attempt]()
    best, known = _best(mine), {attempt.candidate.hash(): attempt for attempt in mine}
    row: dict[str, Any] = {
        "outcome": "judged",
        "eager_ms": baseline.eager_ms,
        "floor_ms": baseline.floor_ms,
        "attempts": [_line(each if isinstance(each, str) else known.get(each.hash())) for each in one.answers],
        "different": len(one.candidates) + len(one.later),
        **_figures(mine),
    }
    row["first"] &= isinstance(one.answers[0], Candidate)
    if options.generator:
        why, judged = play(environment, baseline, len(one.answers))
        theirs = list(_verified(environment, judged))
        row["generator"] = {"why": why, "evaluations": len(theirs), **_figures(theirs)}
        ms = row["generator"]["best_ms"]
        if best is not None and (ms is None or row["best_ms"] * CLEAR <= ms):
            tried = [attempt.candidate for attempt in theirs]
            outside = is_outside(best.candidate, environment.graph, environment.device, tried)
            row["win"] = {"outside": outside, "source": next(iter(best.candidate.sources.values()))}
    if options.compiled:
        row |= _speed(environment, best)
    for attempt in (*mine, *theirs):
        stages.update(attempt.quick.seconds)
        stages["full verify"] += sum(attempt.full.seconds.values()) if attempt.full else 0.0
    return {**row, "stages": {**stages, "waiting": environment.waited - waited}}


def _mine(one: Subject, environment: Environment, options: JudgeOptions) -> Iterator[Attempt]:
    """Judges all candidates, or those up to the first verified one."""
    for some in (one.candidates, one.later):
        for attempt in _verified(environment, quickly(environment, some)):
            yield attempt
            if attempt.verified and not options.thorough:
                return


def _verified(environment: Environment, judged: Iterable[Judged]) -> Iterator[Attempt]:
    for candidate, quick in judged:
        yield Attempt(candidate, quick, environment.verify_in_full(candidate) if quick.correct else None)


def _best(attempts: Iterable[Attempt]) -> Attempt | None:
    """The verified attempt that is fastest in the quick tier."""
    return min((one for one in attempts if one.verified), key=lambda one: one.ms or 0.0, default=None)


def _figures(attempts: Sequence[Attempt]) -> dict[str, Any]:
    best = _best(attempts)
    first = bool(attempts) and attempts[0].verified
    return {"first": first, "best": best is not None, "best_ms": best and best.ms}


def _speed(environment: Environment, best: Attempt | None) -> dict[str, Any]:
    """Confirms the best candidate against torch.compile, in the full tier."""
    baseline = environment.baseline(compiled=True)
    room = bool(baseline.floor_ms) and (baseline.compile_ms or 0.0) >= HEADROOM * baseline.floor_ms
    evaluation = environment.confirm(best.candidate) if best and room else None
    timing = evaluation.timing if evaluation and evaluation.correct else None
    return {
        "compile_ms": baseline.compile_ms,
        "headroom": room,
        "speedup_vs_compile": timing.speedup_vs_compile if timing else None,
        "faster": timing is not None and measurably_faster(timing.speedup_vs_compile, timing.speedup_vs_compile_ci),
    }


def _line(attempt: Attempt | str | None) -> dict[str, Any]:
    """An attempt in a row; None is one that was not judged."""
    if attempt is None:
        return {"outcome": "not_judged"}
    if isinstance(attempt, str):
        return {"outcome": attempt.split()[0], "why": attempt}
    quick = attempt.quick
    document: dict[str, Any] = {"outcome": quick.outcome.value, "seconds": sum(quick.seconds.values())}
    return document | ({"ms": attempt.ms} if quick.correct else {"why": quick.message[:200]})
