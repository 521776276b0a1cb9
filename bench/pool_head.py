"""The trainer's cost of one evaluation on another machine."""

from __future__ import annotations

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
from kernel_assistant_training.episodes.lines import EpisodeFile
from kernel_assistant_training.evaluation.worker import Answer, CandidateJudged, EvaluationJob
from kernel_assistant_training.ppo.pool.pool import StoredEvaluation
from tests.common.results import accuracy_of


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
                if job.found[-1] is not None:
                    lines.add(StoredEvaluation(task=job.task_hash, evaluation=job.found[-1], device="none"))
            spent += time.process_time() - began
        lines.close()
    return spent / sum(len(job.found) for job in jobs)


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
