"""One process that judges the generator's candidates for tasks: a warm worker, and builders ahead of it."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

import msgspec

from kernel_assistant.errors import MissingError
from kernel_assistant.generator.emit import SOURCE, emit
from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.search import initial, neighbours
from kernel_assistant.records import Candidate, Evaluation, Numerics, OpGraph, Tier
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import Record
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.session.training_run import Wish, wish_of
from kernel_assistant.source.build import build_task
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.bandwidth import folder_with_bandwidth
from kernel_assistant_training.episodes.ahead import AheadCompiler
from kernel_assistant_training.episodes.lines import Lines, read_lines
from kernel_assistant_training.episodes.threads import part_of_gpu
from kernel_assistant_training.episodes.turns import DeviceTurn
from kernel_assistant_training.ppo.pool_worker import Job, PoolWorker
from kernel_assistant_training.ppo.tasks import Task
from kernel_assistant_training.tasks.shards import graph_of, read_rows

#: Tasks whose candidates are built before their turn comes.
AHEAD = 4
LOOK_SECONDS = 0.5
#: What an evaluation calls its seconds, and a row.
_SPENT = {"compile": "build", "verify": "verify", "profile": "profile"}


@dataclass(frozen=True)
class LabelOptions:
    """`candidates` of a task at most, of the first `tasks_most` tasks; part by part in `parts` processes with
    `builders` compilers each."""

    out: Path
    tasks: Path
    target: str
    python: str
    cache: Path
    candidates: int = 16
    tasks_most: int = 1 << 62
    parts: int = 1
    builders: int = 1
    sandbox: str = "auto"
    seconds: float = float("inf")


class Label(Record, frozen=True, kw_only=True):
    """A candidate and what became of it. `outcome` is the evaluation's, `lost` where the judge died at it,
    `unsupported` where the generator has none for the task, `unopened` where the task cannot be judged.

    `candidate_ms` is the median of `samples` blocks, whose relative spread is `noise`. Memory in bytes; registers and
    static shared memory are the largest of its kernels', `launches` says grid, block and dynamic shared memory.

    Seconds are those that the judge waited: for the build, and for its turns on the device. What opening a task took,
    with eager PyTorch's time, is said of its first candidate."""

    task: str
    number: int
    target: str
    device: str
    outcome: str
    message: str = ""
    candidate: str = ""
    schedule: str = ""
    source: str = ""
    stage: str = ""
    launches: str = ""
    candidate_ms: float | None = None
    noise: float | None = None
    samples: int | None = None
    eager_ms: float | None = None
    floor_ms: float | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    spill_bytes: int | None = None
    seconds: float | None = None
    open_seconds: float | None = None
    build_seconds: float | None = None
    verify_seconds: float | None = None
    profile_seconds: float | None = None

    def row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


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
        folder = options.out / "labels"
        path = folder / f"labels-{part:02}.jsonl"
        self._lines = Lines(path)
        known = list(read_lines(path, Label))
        self._done = Counter(one.task for one in known if one.candidate)
        self._without = {one.task for one in known if not one.candidate}
        self._device = _device(options.target, part)
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-assistant-labels-"))
        self._cancel = threading.Event()
        self._compiler = AheadCompiler(
            self._device, choose(options.sandbox), self._folder, self._cancel, threads=options.builders
        )
        self._turn = DeviceTurn(folder / f"device-{self._device.index}.lock")
        shares = options.target == "cuda"
        turns = folder / f"turns-{self._device.index}"
        turns.mkdir(exist_ok=True)
        self._worker = PoolWorker(
            self._device,
            python=options.python,
            log=folder / f"worker-{part:02}.log",
            cache=options.cache,
            sandbox=options.sandbox,
            compiler=self._compiler,
            # Judges of a GPU take turns block by block. On the CPU whatever runs beside it disturbs what is timed.
            measuring=nullcontext() if shares else self._turn,
            turns=turns if shares else None,
            quick_only=True,
            cancel=self._cancel,
            env=part_of_gpu(options.parts, len(cuda.gpus())) if shares else None,
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
        # All at once, and not one behind another in the turn.
        worker.process.start(self._cancel)
        with self._turn:
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
            graph = graph_of(row)
            try:
                found = tuple(islice(candidates(graph, self._device), options.candidates))
            except Unsupported as why:
                self._add(row["key"], "unsupported", str(why))
                continue
            if done < len(found):
                yield Waiting(task_of(row, options.target), row["number"], done, found[done:])

    def _judge(self, one: Waiting) -> None:
        if not self._ready:
            self._measure_bandwidth()
        job = Job(one.task, tuple((candidate, Tier.quick) for candidate in one.candidates))
        began, known = time.monotonic(), list[float]()
        self._worker.do(job, lambda: known.append(time.monotonic()))
        if job.opened is None and not any(job.found):
            self._add(one.task.key, "unopened", job.why)
        else:
            opened: float | None = round(known[0] - began, 4)
            for number, (candidate, found) in enumerate(zip(one.candidates, job.found, strict=True), one.first):
                self._lines.add(_label(one.task.key, number, candidate, found, self._device, opened))
                opened = None
        self._compiler.forget(one.candidates)
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


def read_labels(folder: Path) -> Iterator[Label]:
    for path in sorted(folder.glob("labels-*.jsonl")):
        yield from read_lines(path, Label)


def task_of(row: dict[str, Any], target: str) -> Task:
    """A row of the shards as the pool of training by reward takes it."""
    path = f"/nowhere/task_{row['key']}.py"
    described = build_task(path, target=target, numerics=Numerics.kernelbench, text=row["text"])
    graph = graph_of(row)
    return Task(row["key"], row["operator_count"], graph, canonical(graph), described)


def _label(
    key: str, number: int, candidate: Candidate, found: Evaluation | None, device: DeviceFacts, opened: float | None
) -> Label:
    timing = found.timing if found else None
    resources = found.resources if found else ()
    plan = candidate.plan
    spent = {_SPENT[name]: taken for name, taken in found.seconds.items()} if found else {}
    launches = [[one.symbol, one.grid, one.block, one.shared] for one in plan.launches]
    return Label(
        task=key,
        number=number,
        target=plan.target,
        device=device.arch,
        outcome=found.outcome.value if found else "lost",
        message=found.message if found else "",
        candidate=candidate.hash(),
        schedule=plan.schedule,
        source=candidate.sources[SOURCE[plan.target]],
        stage=found.stage.value if found else "",
        launches=msgspec.json.encode(launches).decode(),
        candidate_ms=timing.candidate_ms if timing else None,
        noise=timing.noise if timing else None,
        samples=timing.samples if timing else None,
        eager_ms=timing.eager_ms if timing else None,
        floor_ms=timing.floor_ms if timing else None,
        registers=max((one.registers for one in resources), default=None),
        shared_bytes=max((one.shared_bytes for one in resources), default=None),
        spill_bytes=max((one.spill_bytes for one in resources), default=None),
        seconds=round(sum(found.seconds.values()), 4) if found else None,
        open_seconds=opened,
        **{f"{name}_seconds": round(taken, 4) for name, taken in spent.items()},
    )


def _device(target: str, part: int) -> DeviceFacts:
    """Of several GPUs the parts have one each in turn. Raises MissingError where there is none."""
    gpus = cuda.gpus() if target == "cuda" else []
    return gpus[part % len(gpus)] if gpus else detect(target)
