"""Judges a free-form candidate of a path, without a session host."""

from __future__ import annotations

import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from kernel_assistant.environment.freeform import open_freeform, target_of, task_of
from kernel_assistant.environment.freeform_candidate import load_candidate
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import Evaluation, Tier
from kernel_assistant.targets.detect import detect


def verify_path(
    path: Path, reference: str | None = None, *, cache_dir: Path, tier: Tier = Tier.full, profile: bool = True
) -> Evaluation:
    """The evaluation on the CPU, against `reference` or the reference that comes with the candidate."""
    candidate = load_candidate(path, reference)
    target = target_of(candidate, "cpu")
    task = task_of(candidate, reference, target, "kernelbench")
    settings: dict[str, Any] = {"sandbox_mode": "auto", "cache_dir": cache_dir, "emit": lambda event: None}
    with (
        closing(WorkerClient(sys.executable)) as worker,
        open_freeform(task, device=detect(target), worker=worker, cancel=threading.Event(), **settings) as environment,
    ):
        return environment.evaluate(candidate, tier, profile=profile)
