"""On a GPU, one runner serves several candidates when many tasks are judged in a row."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Numerics, Outcome, Tier
from kernel_assistant.source.build import build_task
from kernel_assistant.worker.running.runner_client import descendants
from tests.judge import kernels
from tests.worker.opened import module_text

pytestmark = pytest.mark.gpu


def _runners(worker: WorkerClient) -> set[int]:
    return {
        pid for pid in descendants(worker.process.pid) if b"runner/boot.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    }


def test_two_tasks_have_one_runner_and_each_is_judged(tmp_path: Path, cache: Path) -> None:
    worker, seen = kernels.new_worker(cache / "worker.log"), []
    for body in ("x.sin() + 1", "x.softmax(-1)"):
        path = tmp_path / f"task{len(seen)}.py"
        path.write_text(module_text(f"return {body}", "torch.randn(512, 1024)"))
        task = build_task(str(path), target="cuda", numerics=Numerics.kernelbench, text=path.read_text())
        with kernels.environment(worker, cache, task, throughput=True) as environment:
            schedules = initial(environment.graph, "cuda", environment.device)[:2]
            candidates = [emit(environment.graph, one) for one in schedules]
            found = environment.evaluate(candidates, Tier.quick)
            assert [one.outcome for one in found] == [Outcome.correct] * len(found)
            assert all(one.timing is not None and one.timing.eager_ms > 0 for one in found)
            seen.append(_runners(worker))
    assert seen[0] == seen[1] != set()
    worker.close()
    while any(Path(f"/proc/{pid}").exists() for pid in seen[0]):
        time.sleep(0.02)
