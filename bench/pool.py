"""How evaluation for training scales with workers: one machine, one worker a GPU.

`python -m bench.pool --workers 1,2,4` prints a line of JSON for each number; on the CPU workers take turns.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random

import msgspec

from bench.figures import Figure, Settings
from bench.pool_head import head_seconds
from kernel_assistant.config import resolve
from kernel_assistant.generator.emit import SOURCE
from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.records import Candidate, Evaluation, Tier
from kernel_assistant.remote.ssh import Channel
from kernel_assistant.targets import cuda
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.ppo.pool_events import (
    Given,
    Judged,
    StationOptions,
    TaskOpened,
)
from kernel_assistant_training.ppo.pool_fleet import Fleet
from kernel_assistant_training.ppo.pool_machine import Far, Hear, Here, Machine, Member
from kernel_assistant_training.ppo.pool_ssh import MODULE, ChannelWire
from kernel_assistant_training.ppo.pool_worker import Job
from kernel_assistant_training.ppo.sources import SourceOptions, Sources
from kernel_assistant_training.tasks.labeller import candidates

SILENT_SECONDS = 60.0
#: Tasks, and candidates of each, for what the head costs alone.
HEAD_LOAD = (40, 12)


@dataclass(frozen=True)
class Load:
    """For each worker."""

    tasks: int
    candidates: int


@dataclass(frozen=True)
class Scaling:
    """One number of workers. Times in seconds, of all workers together where nothing else is said."""

    workers: int
    far: bool
    evaluations: int
    tasks: int
    correct: int
    void: int
    start: float
    open: float
    judge: float
    head_cpu: float
    building: float
    judging: float
    wire_bytes: int

    @property
    def rate(self) -> float:
        return self.evaluations / self.judge

    @property
    def busy(self) -> float:
        """The share of its time that a worker judges, rather than opens a task or waits for a build."""
        return self.judging / (self.workers * self.judge)


def measure(settings: Settings) -> list[Figure]:
    counts = [1, 2] if settings.target == "cpu" else [n for n in (1, 2, 4, 8) if n <= len(cuda.gpus())]
    load = Load(tasks=settings.count(6, 2), candidates=settings.count(12, 3))
    found = [scaling(settings.target, count, load) for count in counts]
    head = scaling(settings.target, counts[-1], load, far=True)
    figures = []
    for one in found:
        how = f"{one.evaluations} fresh candidates of {one.tasks} tasks, builds included"
        figures += [
            Figure(f"evaluations, {one.workers} workers", one.rate, "/s", how),
            Figure(f"a worker judges, {one.workers} workers", 100 * one.busy, "%", "else it opens or waits"),
        ]
    for one in found[1:]:
        share = 100 * one.rate / (one.workers * found[0].rate)
        figures.append(Figure(f"scaling to {one.workers} workers", share, "%", "of so many times one"))
    alone = head_seconds(_jobs(settings.target, *HEAD_LOAD, "head"))
    return [
        *figures,
        Figure("opening a task", 1e3 * found[0].open / found[0].tasks, "ms", "with its eager time, one worker"),
        Figure("head", 1e3 * head.head_cpu / head.evaluations, "ms", "processor time an evaluation, workers far"),
        Figure("head alone", 1e3 * alone, "ms", "the same with no machine behind it"),
        Figure("wire", head.wire_bytes / head.evaluations / 1024, "KiB", "an evaluation, both ways"),
    ]


def scaling(target: str, workers: int, load: Load, *, far: bool = False) -> Scaling:
    """Each worker has as much to do, whatever their number: the same tasks and schedules, once for each."""
    once = _jobs(target, load.tasks, load.candidates, "scaling")
    jobs = [_again(job, number, target) for number in range(workers) for job in once]
    with tempfile.TemporaryDirectory(prefix="ka-bench-pool-") as folder:
        began = time.monotonic()
        options = StationOptions(target=target, workers=workers)
        member = Member("far", _piped) if far else Member("here", lambda options, hear: _here(options, hear, folder))
        fleet = Fleet([member], options, lambda line: print(line, file=sys.stderr), 0.0)
        try:
            started = time.monotonic()
            fleet.run([Job(job.task, ()) for job in jobs], lambda job: None)
            opened, before = time.monotonic(), time.process_time()
            fleet.run(jobs, lambda job: None)
            ended, after = time.monotonic(), time.process_time()
        finally:
            fleet.close()
    found = [one for job in jobs for one in job.found]
    spent = _spent(found)
    return Scaling(
        workers=workers,
        far=far,
        evaluations=len(found),
        tasks=len(jobs),
        correct=sum(one is not None and one.correct for one in found),
        void=found.count(None),
        start=started - began,
        open=opened - started,
        judge=ended - opened,
        head_cpu=after - before,
        building=spent["compile"],
        judging=spent["verify"] + spent["profile"],
        wire_bytes=sum(map(_wire_bytes, jobs)),
    )


def _jobs(target: str, count: int, each: int, seed: str) -> list[Job]:
    """Of the synthesis, with the generator's schedules."""
    device, found = detect(target), []
    for task in Sources(target, SourceOptions()).tasks(4 * count, Random(f"pool {seed}")):
        try:
            some = tuple((one, Tier.quick) for one in islice(candidates(task.graph, device), each))
        except Unsupported:
            continue
        found.append(Job(task, some))
        if len(found) == count:
            return found
    raise RuntimeError(f"only {len(found)} tasks with candidates")


def _again(job: Job, number: int, target: str) -> Job:
    """The same work, number `number`, of which nothing is known from another: a task that is opened for itself, and
    sources that are built for themselves."""
    path = job.task.kernel_task.path.removesuffix(".py")
    described = msgspec.structs.replace(job.task.kernel_task, path=f"{path}_{number}.py")
    candidates = tuple((_retold(one, f"// {number}", target), tier) for one, tier in job.candidates)
    return Job(replace(job.task, kernel_task=described), candidates)


def _retold(candidate: Candidate, comment: str, target: str) -> Candidate:
    name = SOURCE[target]
    text = f"{candidate.sources[name].rstrip()}\n{comment}\n"
    return msgspec.structs.replace(candidate, sources={**candidate.sources, name: text})


def _spent(found: Sequence[Evaluation | None]) -> Counter[str]:
    spent: Counter[str] = Counter()
    for one in found:
        spent.update(one.seconds if one is not None else {})
    return spent


def _wire_bytes(job: Job) -> int:
    """What goes over a wire for a job, both ways."""
    said: list[object] = [Given(number=0, task=job.task, candidates=job.candidates)]
    said += [Judged(job=0, evaluation=one) for one in job.found]
    said += [TaskOpened.of(0, job.opened)] if job.opened else []
    return sum(len(msgspec.json.encode(one)) for one in said)


def _here(options: StationOptions, hear: Hear, folder: str) -> Machine:
    return Here(options, hear, Path(folder), resolve()[0].cache_dir)


def _piped(options: StationOptions, hear: Hear) -> Machine:
    """What runs behind ssh, on this machine without ssh."""
    ours, theirs = socket.socketpair()
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the channel
    argv = [sys.executable, "-m", MODULE]
    process = subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=errors)
    theirs.close()
    wire = ChannelWire(Channel("far", ours, process, errors), sys.executable, SILENT_SECONDS)
    return Far("far", wire, options, hear, SILENT_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="1,2,4", help="numbers of them, one after another")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--tasks", type=int, default=6, help="for each worker")
    parser.add_argument("--candidates", type=int, default=12, help="of each task")
    parser.add_argument("--far", action="store_true", help="in a process of their own, as behind ssh")
    parser.add_argument("--head", action="store_true", help="what an evaluation costs the head, alone")
    options = parser.parse_args()
    target = detect(options.target).target
    if options.head:
        print(json.dumps({"head_ms": round(1e3 * head_seconds(_jobs(target, *HEAD_LOAD, "head")), 4)}))
        return
    for count in map(int, options.workers.split(",")):
        found = scaling(target, count, Load(options.tasks, options.candidates), far=options.far)
        figures = {"rate": round(found.rate, 2), "busy": round(found.busy, 3)}
        print(json.dumps({name: _short(value) for name, value in asdict(found).items()} | figures), flush=True)


def _short(value: float) -> float:
    return round(value, 3) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
