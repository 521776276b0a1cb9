"""How evaluation for training scales with workers: one machine, one worker a GPU.

`python -m bench.pool --workers 1,2,4` prints a line of JSON for each number; on the CPU workers take turns.
`--together` divides the tasks among the workers and opens each as its candidates are evaluated.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from random import Random

import msgspec

from bench.figures import Figure, Settings
from bench.harness import Row
from kernel_assistant.config import resolve
from kernel_assistant.generator.emit import SOURCE
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.records import Candidate, Evaluation, KernelResources, Outcome, Stage, Tier, Timing
from kernel_assistant.records.codec import decode, encode
from kernel_assistant.targets import cuda
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.episodes.lines import EpisodeFile
from kernel_assistant_training.evaluation.options import BESIDE_TRAINER, WorkerOptions
from kernel_assistant_training.evaluation.worker import Answer, CandidateJudged, EvaluationJob, TaskOpened
from kernel_assistant_training.options.addresses import HostAddress
from kernel_assistant_training.ppo.pool import ray_hosts
from kernel_assistant_training.ppo.pool.host_group import HostGroup
from kernel_assistant_training.ppo.pool.local_host import LocalHost
from kernel_assistant_training.ppo.pool.pool import StoredEvaluation
from kernel_assistant_training.ppo.sources import MixedSource, SourceOptions
from kernel_assistant_training.tasks.labeller import candidates
from tests.common.results import accuracy_of

#: Tasks, and candidates of each, for measuring the trainer's own cost.
HEAD_LOAD = (40, 12)


@dataclass(frozen=True)
class Load:
    """`tasks` for each worker, or for all of them `together`; `candidates` of each task."""

    tasks: int
    candidates: int
    together: bool = False


def measure(settings: Settings) -> list[Figure]:
    counts = [1, 2] if settings.target == "cpu" else [n for n in (1, 2, 4, 8) if n <= len(cuda.gpus())]
    load = Load(tasks=settings.count(6, 2), candidates=settings.count(12, 3))
    results = [scaling(settings.target, count, load) for count in counts]
    figures = []
    for one in results:
        how = f"{one['evaluations']} fresh candidates of {one['tasks']} tasks, builds included"
        figures.append(Figure(f"evaluations, {one['workers']} workers", one["rate"], "/s", how))
        what = f"a worker judges, {one['workers']} workers"
        figures.append(Figure(what, 100 * one["busy"], "%", "else it opens or waits"))
    for one in results[1:]:
        share = 100 * one["rate"] / (one["workers"] * results[0]["rate"])
        figures.append(Figure(f"scaling to {one['workers']} workers", share, "%", "of so many times one"))
    if find_spec("ray"):
        far = scaling(settings.target, counts[-1], load, far=True)
        how = "processor time an evaluation, workers in Ray"
        figures.append(Figure("head", 1e3 * far["head_cpu"] / far["evaluations"], "ms", how))
    alone, last = head_seconds(_jobs(settings.target, *HEAD_LOAD, "head")), results[-1]
    return [
        *figures,
        Figure(
            "opening a task", 1e3 * results[0]["open"] / results[0]["tasks"], "ms", "with its eager time, one worker"
        ),
        Figure("head alone", 1e3 * alone, "ms", "the same with no machine behind it"),
        Figure("wire", last["wire_bytes"] / last["evaluations"] / 1024, "KiB", "an evaluation, both ways"),
    ]


def scaling(target: str, workers: int, load: Load, *, far: bool = False) -> Row:
    """Figures for `workers` workers, which have equally much to do: the same tasks and schedules once per worker. Tasks
    are opened before, but for those of a load `together`. Times are in seconds, summed over all workers where that
    applies. `rate`: evaluations a second; `busy`: the share of its time in which a worker judges, instead of opening a
    task or waiting for a build."""
    once = _jobs(target, load.tasks, load.candidates, "scaling")
    jobs = once if load.together else [_again(job, number, target) for number in range(workers) for job in once]
    with tempfile.TemporaryDirectory(prefix="ka-bench-pool-") as folder:
        began = time.monotonic()
        options = WorkerOptions(target, sys.executable, Path(folder), resolve()[0].cache_dir, workers)
        options = replace(options, memory=BESIDE_TRAINER)
        # Far: an actor in a Ray cluster of this machine alone, which ends with this process.
        ray = HostAddress("ray", "local", workers=workers)
        connect = ray_hosts.connections(ray, target)[0] if far else LocalHost
        hosts = HostGroup([connect], options, lambda line: print(line, file=sys.stderr), 0.0)
        try:
            started = time.monotonic()
            if not load.together:
                hosts.run([EvaluationJob(job.task, ()) for job in jobs], lambda job, index: None)
            opened, before = time.monotonic(), time.process_time()
            hosts.run(jobs, lambda job, index: None)
            ended, after = time.monotonic(), time.process_time()
        finally:
            hosts.close()
    evaluations = [one for job in jobs for one in job.evaluations]
    spent = Counter[str]()
    for one in evaluations:
        spent.update(one.seconds if one is not None else {})
    judging, opening, judge = spent["verify"] + spent["profile"], opened - started, ended - opened
    return {
        "workers": workers,
        "evaluations": len(evaluations),
        "tasks": len(jobs),
        "correct": sum(one is not None and one.correct for one in evaluations),
        "void": evaluations.count(None),
        "start": started - began,
        "open": opening,
        "judge": judge,
        "head_cpu": after - before,
        "building": spent["compile"],
        "judging": judging,
        "wire_bytes": sum(map(_wire_bytes, jobs)),
        "why_void": [f"{job.task.kernel_task.name}: {job.why}" for job in jobs if None in job.evaluations],
        "rate": len(evaluations) / judge,
        "rate_with_opening": len(evaluations) / (opening + judge),
        "busy": judging / (workers * judge),
    }


def _jobs(target: str, count: int, each: int, seed: str) -> list[EvaluationJob]:
    """`count` tasks of the synthesis with the generator's first schedules."""
    device, jobs = detect(target), []
    for task in MixedSource(target, SourceOptions()).tasks(4 * count, Random(f"pool {seed}")):
        try:
            some = tuple((one, Tier.quick) for one in islice(candidates(task.graph, device), each))
        except Unsupported:
            continue
        jobs.append(EvaluationJob(task, some))
        if len(jobs) == count:
            return jobs
    raise RuntimeError(f"only {len(jobs)} tasks with candidates")


def _again(job: EvaluationJob, number: int, target: str) -> EvaluationJob:
    """A copy of the job with the number `number`. It shares nothing with other jobs: its task is opened again, and its
    sources are built again.
    """
    path = job.task.kernel_task.path.removesuffix(".py")
    described = msgspec.structs.replace(job.task.kernel_task, path=f"{path}_{number}.py")
    candidates = tuple((_commented(one, f"// {number}", target), tier) for one, tier in job.candidates)
    return EvaluationJob(replace(job.task, kernel_task=described), candidates)


def _commented(candidate: Candidate, comment: str, target: str) -> Candidate:
    text = f"{candidate.sources[SOURCE[target]].rstrip()}\n{comment}\n"
    return msgspec.structs.replace(candidate, sources={**candidate.sources, SOURCE[target]: text})


def _wire_bytes(job: EvaluationJob) -> int:
    """Bytes that a job sends over the connection, both ways. It goes there twice: to be built, and to be judged."""
    messages: list[object] = [EvaluationJob(job.task, job.candidates)] * 2
    messages += [CandidateJudged(evaluation=one) for one in job.evaluations]
    messages += [TaskOpened(opened=job.opened)] if job.opened else []
    return sum(len(msgspec.json.encode(one)) for one in messages)


def head_seconds(jobs: Sequence[EvaluationJob]) -> float:
    """Processor seconds of the trainer for one evaluation on another machine: a candidate is sent, an answer is
    received. No machine is involved; the answers are one real record with other names."""
    with tempfile.TemporaryDirectory(prefix="ka-bench-pool-") as folder:
        lines, spent = EpisodeFile(Path(folder, "evaluations.jsonl")), 0.0
        for job in jobs:
            answers = [encode([CandidateJudged(evaluation=_answer(key))]) for key in job.hashes]
            began = time.process_time()
            for _ in ("to be built", "to be judged"):
                encode(job)
            for answer in answers:
                for one in decode(answer, list[Answer]):
                    job.add(one)
                if job.evaluations[-1] is not None:
                    lines.add(StoredEvaluation(task=job.task_hash, evaluation=job.evaluations[-1], device="none"))
            spent += time.process_time() - began
        lines.close()
    return spent / sum(len(job.evaluations) for job in jobs)


def _answer(candidate: str) -> Evaluation:
    return Evaluation(
        candidate=candidate,
        tier=Tier.quick,
        outcome=Outcome.correct,
        stage=Stage.profile,
        message="",
        accuracy=accuracy_of(),
        timing=Timing(candidate_ms=0.1, eager_ms=0.2, speedup_vs_eager=2.0, floor_ms=0.05, samples=20),
        resources=(KernelResources(symbol="k0", registers=32),),
        precision="f32",
        seconds={"compile": 0.3, "verify": 0.01, "profile": 0.04},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="1,2,4", help="numbers of them, one after another")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--tasks", type=int, default=6, help="for each worker")
    parser.add_argument("--together", action="store_true", help="so many tasks for all workers together")
    parser.add_argument("--candidates", type=int, default=12, help="of each task")
    parser.add_argument("--head", action="store_true", help="what an evaluation costs the head, alone")
    options = parser.parse_args()
    target = detect(options.target).target
    if options.head:
        print(json.dumps({"head_ms": round(1e3 * head_seconds(_jobs(target, *HEAD_LOAD, "head")), 4)}))
        return
    for count in map(int, options.workers.split(",")):
        row = scaling(target, count, Load(options.tasks, options.candidates, options.together))
        short = {name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()}
        print(json.dumps(short), flush=True)


if __name__ == "__main__":
    main()
