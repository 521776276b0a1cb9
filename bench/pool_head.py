"""What one evaluation on another machine costs the head of a pool."""

from __future__ import annotations

import io
import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel_assistant.records import (
    Evaluation,
    KernelResources,
    Outcome,
    Stage,
    Tier,
    Timing,
)
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.targets import cpu
from kernel_assistant.worker.frames import read_frame, write_frame
from kernel_assistant_training.episodes.lines import Lines
from kernel_assistant_training.ppo.pool import Known
from kernel_assistant_training.ppo.pool_events import Given, Greeting, Judged, event_from_wire, event_to_wire
from kernel_assistant_training.ppo.pool_shares import Shares
from kernel_assistant_training.ppo.pool_worker import Job
from tests.common.results import accuracy_of


def head_seconds(jobs: Sequence[Job]) -> float:
    """Processor time of the head for one evaluation on another machine: its candidate is sent, an answer comes back.
    No machine is behind it; the answers are one real record with other names."""
    with tempfile.TemporaryDirectory(prefix="ka-bench-pool-") as folder:
        lines, shares, name = Lines(Path(folder, "evaluations.jsonl")), Shares(itertools.count()), _Name()
        shares.join(name)
        shares.add(jobs)
        began = time.process_time()
        given = []
        for _, number, job in shares.handed():
            given.append((number, job))
            _framed({"give": to_builtins(Given(number=number, task=job.task, candidates=job.candidates))})
        spent = time.process_time() - began
        answers = [
            _framed({"event": event_to_wire(Judged(job=number, evaluation=_answer(key)))})
            for number, job in given
            for key in job.hashes
        ]
        began = time.process_time()
        for answer in answers:
            frame = read_frame(io.BytesIO(answer))
            judged = shares.apply(name, event_from_wire(frame[0]["event"])) if frame else None
            if judged is not None and judged.found[-1] is not None:
                lines.add(Known(task=judged.task_hash, evaluation=judged.found[-1], device="none"))
        spent += time.process_time() - began
        lines.close()
    return spent / len(answers)


class _Name:
    """As much of a machine as its bookkeeping knows."""

    name = "none"
    greeting = Greeting(workers=1 << 20, device=cpu.facts(), toolkit="", torch="")

    def give(self, number: int, job: Job) -> None:
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


def _framed(message: dict[str, Any]) -> bytes:
    frame = io.BytesIO()
    write_frame(frame, message)
    return frame.getvalue()
