"""The trainer's cost of one evaluation on another machine."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kernel_assistant.records import (
    Evaluation,
    KernelResources,
    Outcome,
    Stage,
    Tier,
    Timing,
)
from kernel_assistant.records.codec import decode, encode
from kernel_assistant.targets import cpu
from kernel_assistant_training.episodes.lines import EpisodeFile
from kernel_assistant_training.evaluation.worker import EvaluationJob
from kernel_assistant_training.ppo.pool.assignment import JobAssignment
from kernel_assistant_training.ppo.pool.events import CandidateJudged, Event, HostReady, JobMessage
from kernel_assistant_training.ppo.pool.pool import StoredEvaluation
from tests.common.results import accuracy_of


def head_seconds(jobs: Sequence[EvaluationJob]) -> float:
    """Processor seconds of the trainer for one evaluation on another machine: a candidate is sent, an answer is
    received. No machine is involved; the answers are one real record with other names."""
    with tempfile.TemporaryDirectory(prefix="ka-bench-pool-") as folder:
        lines, assignment, name = (
            EpisodeFile(Path(folder, "evaluations.jsonl")),
            JobAssignment(itertools.count()),
            _Name(),
        )
        assignment.join(name)
        assignment.add(jobs)
        began = time.process_time()
        given = []
        for _, number, job in assignment.handed():
            given.append((number, job))
            encode(JobMessage(number=number, task=job.task, candidates=job.candidates))
        spent = time.process_time() - began
        answers = [
            encode([CandidateJudged(job=number, evaluation=_answer(key))])
            for number, job in given
            for key in job.hashes
        ]
        began = time.process_time()
        for answer in answers:
            judged = assignment.apply(name, decode(answer, list[Event])[0])
            if judged is not None and judged.found[-1] is not None:
                lines.add(StoredEvaluation(task=judged.task_hash, evaluation=judged.found[-1], device="none"))
        spent += time.process_time() - began
        lines.close()
    return spent / len(answers)


class _Name:
    """The part of an evaluation host that the assignment uses."""

    name = "none"
    greeting = HostReady(workers=1 << 20, device=cpu.facts(), toolkit="", torch="")

    def give(self, number: int, job: EvaluationJob) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


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
