"""Judges a frozen corpus of honest, faulty and hostile candidates again: every verdict has to stay what it is.

    python -m bench.verdicts [--target cpu|cuda]    # the exit code is 1 if a verdict differs
    python -m bench.verdicts --write                # judges it three times and writes the verdicts that it gets now

The corpus of a target is `tests/data/verdicts/TARGET.jsonl.xz`: a line with the headers that candidates share, then
a line for each task. `--write` keeps the candidates that get the same verdict each time.
"""

from __future__ import annotations

import argparse
import lzma
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from msgspec.structs import replace

from kernel_assistant.config import resolve
from kernel_assistant.environment import session
from kernel_assistant.environment.builds.compile import CompileFailure
from kernel_assistant.environment.freeform import open_freeform
from kernel_assistant.environment.freeform_candidate import ModelCandidate
from kernel_assistant.environment.screens.screen import screen
from kernel_assistant.records import Candidate, Diagnostic, Evaluation, KernelTask, OpGraph, Outcome, Tier
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import Record, decode, encode
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.evaluation import workers as evaluation_workers
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.tasks import Task
from kernel_assistant_training.evaluation.worker import EvaluationJob, EvaluationWorker
from kernel_assistant_training.evaluation.workers import EvaluationWorkers

FOLDER = Path(__file__).resolve().parent.parent / "tests/data/verdicts"
RUNS = 3
#: The origin of candidates that the screen lets pass: the other defences have to suffice without it.
UNSCREENED = "unscreened"


class Label(Record, frozen=True, kw_only=True):
    """A candidate and its verdict. `source` says where the candidate is from; `candidate` is a plan, or the text of a
    free-form one. `outcome` is None before it was judged, and where the judge was lost. `sizes` is as in Evaluation,
    `message` the reason that the judge gave when the corpus was written."""

    source: str
    candidate: Candidate | str
    tier: Tier = Tier.quick
    screened: bool = True
    outcome: Outcome | None = None
    sizes: str = "all"
    message: str = ""

    @property
    def verdict(self) -> str:
        named = self.outcome.value if self.outcome else "not judged"
        return named if self.sizes == "all" else f"{named} at the declared sizes"

    def judged(self, evaluation: Evaluation | None, why: str = "") -> Label:
        if evaluation is None:
            return replace(self, outcome=None, sizes="all", message=why)
        return replace(self, outcome=evaluation.outcome, sizes=evaluation.sizes, message=evaluation.message)


class Row(Record, frozen=True, kw_only=True):
    """A task and its candidates. `graph` is the task's; None if the candidates are free-form ones, which import the
    extension that the first of them builds."""

    task: KernelTask
    labels: tuple[Label, ...]
    graph: OpGraph | None = None


@dataclass(frozen=True)
class Pending:
    """See `CandidatesOfTask`. `places` are the positions of the candidates in their row."""

    task: Task
    candidates: tuple[Candidate, ...]
    row: int
    places: tuple[int, ...]


def read(path: Path) -> list[Row]:
    first, *lines = lzma.decompress(path.read_bytes()).splitlines()
    headers = decode(first, dict[str, str])
    for name, text in headers.items():
        lines = [line.replace(encode(f"@{name}"), encode(text)) for line in lines]
    return [decode(line, Row) for line in lines]


def write(path: Path, rows: Sequence[Row]) -> None:
    plans = [label.candidate for row in rows for label in row.labels if isinstance(label.candidate, Candidate)]
    headers = {name: text for plan in plans for name, text in plan.sources.items() if name.endswith(".h")}
    lines = [encode(row) for row in rows]
    for name, text in headers.items():
        lines = [line.replace(encode(text), encode(f"@{name}")) for line in lines]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(b"".join(line + b"\n" for line in (encode(headers), *lines))))


def judged(rows: Sequence[Row], target: str) -> list[Row]:
    """The rows with the verdicts that their candidates get now. A line for each task goes to stderr."""
    labels, began = [list(row.labels) for row in rows], time.monotonic()
    with mock.patch.object(session, "screen", _screen), mock.patch.object(evaluation_workers, "screen", _screen):
        for most in (Tier.quick, Tier.full):
            for number, place, label in _judged(rows, target, most):
                labels[number][place] = label
                if place == len(labels[number]) - 1:
                    print(f"{time.monotonic() - began:.0f} s: {rows[number].task.name}", file=sys.stderr, flush=True)
    return [replace(row, labels=tuple(some)) for row, some in zip(rows, labels, strict=True)]


def _judged(rows: Sequence[Row], target: str, most: Tier) -> Iterator[tuple[int, int, Label]]:
    """(row, place, label) of each candidate of the tier."""
    places = [tuple(place for place, label in enumerate(row.labels) if label.tier is most) for row in rows]
    pending, others = list[Pending](), list[int]()
    for number, row in enumerate(rows):
        if row.graph is not None and places[number]:
            task = Task("", 0, row.graph, canonical(row.graph), row.task)
            plans = tuple(_plan(row.labels[place]) for place in places[number])
            pending.append(Pending(task, plans, number, places[number]))
        elif places[number]:
            others.append(number)
    if not pending and not others:
        return
    cache = resolve()[0].cache_dir
    with (
        tempfile.TemporaryDirectory() as logs,
        EvaluationWorkers(WorkerOptions(target, sys.executable, Path(logs), cache, most=most)) as workers,
    ):
        workers.start()
        (worker,) = workers.workers
        for one in workers.ahead(pending):
            job = EvaluationJob(one.task, tuple((candidate, most) for candidate in one.candidates))
            worker.do(job)
            worker.require()
            for place, found in zip(one.places, job.evaluations, strict=True):
                yield one.row, place, rows[one.row].labels[place].judged(found, job.why or "the judge was lost")
        for number in others:
            for place, label in _judged_freeform(rows[number], worker, target):
                yield number, place, label


def _plan(label: Label) -> Candidate:
    assert isinstance(label.candidate, Candidate)
    return label.candidate if label.screened else replace(label.candidate, origin=UNSCREENED)


def _screen(candidate: Candidate, graph: OpGraph) -> tuple[Diagnostic, ...]:
    return () if candidate.origin == UNSCREENED else screen(candidate, graph)


def _judged_freeform(row: Row, worker: EvaluationWorker, target: str) -> Iterator[tuple[int, Label]]:
    path = Path(row.task.path)
    candidates = [ModelCandidate(path, str(label.candidate), row.task.content, path, {}) for label in row.labels]
    with open_freeform(
        row.task,
        device=detect(target),
        worker=worker.process,
        sandbox_mode="auto",
        cache_dir=worker.cache,
        cancel=threading.Event(),
        emit=lambda event: None,
    ) as environment:
        built = environment.builder.build(candidates[0])
        if isinstance(built, CompileFailure):
            raise RuntimeError(built.diagnostics[0].message)
        for place, (label, one) in enumerate(zip(row.labels, candidates, strict=True)):
            found = environment.evaluate(one, label.tier) if label.screened else None
            yield place, label.judged(found or environment.measure(one, built, label.tier))


def differences(rows: Sequence[Row], others: Sequence[Row]) -> list[str]:
    """A line for each label whose verdict differs, with both reasons."""
    return [
        f"{row.task.name}, {one.source}: {one.verdict} ({one.message}), now {other.verdict} ({other.message})"
        for row, again in zip(rows, others, strict=True)
        for one, other in zip(row.labels, again.labels, strict=True)
        if one.verdict != other.verdict
    ]


def stable(runs: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of the first run, with the labels that were judged and have the same verdict in every run."""
    kept = []
    for rows in zip(*runs, strict=True):
        columns = zip(*(row.labels for row in rows), strict=True)
        labels = [column[0] for column in columns if column[0].outcome and len({one.verdict for one in column}) == 1]
        kept += [replace(rows[0], labels=tuple(labels))] if labels else []
    return kept


def verdicts_of(rows: Sequence[Row]) -> Counter[str]:
    return Counter(label.verdict for row in rows for label in row.labels)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--write", action="store_true", help="write the verdicts that it gets now")
    options = parser.parse_args()
    path, began = FOLDER / f"{options.target}.jsonl.xz", time.monotonic()
    rows = read(path)
    runs = [judged(rows, options.target) for _ in range(RUNS if options.write else 1)]
    differing = [line for run in runs for line in differences(rows, run)]
    if options.write:
        rows = stable(runs)
        write(path, rows)
    counts = verdicts_of(rows)
    print("\n".join((*differing, *(f"{count:5} {verdict}" for verdict, count in counts.most_common()))))
    same = counts.total() - (0 if options.write else len(differing))
    print(f"{same} of {counts.total()} verdicts are the same, {len(rows)} tasks, {time.monotonic() - began:.0f} s")
    return 1 if differing and not options.write else 0


if __name__ == "__main__":
    raise SystemExit(main())
