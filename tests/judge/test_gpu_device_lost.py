"""On a GPU: indices outside are refused before they end the worker, and a worker that ended so does not end the job."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import UsageError
from kernel_assistant.events import Warned
from kernel_assistant.records import KernelTask, Numerics, Outcome
from kernel_assistant.source.build import build_task
from tests.judge import kernels
from tests.judge.test_gpu_tensor_cores import first_candidate
from tests.worker.opened import module_text

pytestmark = pytest.mark.gpu

#: An operator of another library.
ROWS = """import torch


@torch.library.custom_op("library_of_rows::rows", mutates_args=())
def rows(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[i]


@rows.register_fake
def _(x, i):
    return x.new_empty(i.shape[0], x.shape[1])


"""
#: What the body of forward returns, and the smallest index.
INDEXING = [
    ("return x.index_select(0, i) * 2", 0),
    ("return x[i] + 1", -64),
    ("return torch.zeros_like(x).index_add_(0, i, x[i] * 2)", 0),
    ("return torch.zeros_like(x).scatter_add_(0, i[:, None].expand(512, 8), x[i] * 2)", 0),
    ("y = x.clone(); y[i] += y[i]; return y * 2", 0),
    ("return F.embedding(i.int(), x) * 2", 0),
    ("return x[(x * 63).long()].sum(1) * i[0]", 0),
]


def _task(tmp_path: Path, body: str, lowest: int = 0) -> KernelTask:
    path = tmp_path / "indexing.py"
    inputs = f"torch.rand(64, 8), torch.randint({lowest}, 64, (512,))"
    path.write_text(module_text(body, inputs, arguments="x, i"))
    return build_task(str(path), target="cuda", numerics=Numerics.kernelbench, text=path.read_text())


@pytest.mark.parametrize(("body", "lowest"), INDEXING)
def test_indices_outside_never_reach_the_device(
    body: str, lowest: int, tmp_path: Path, worker: WorkerClient, cache: Path
) -> None:
    """At other sizes and with other values, on one worker from the first module to the last."""
    events: list[object] = []
    with kernels.environment(worker, cache, _task(tmp_path, body, lowest), events=events) as opened:
        process = worker.process.pid
        assert opened.confirm(first_candidate(opened), looks=1).outcome is Outcome.correct
        assert worker.process.pid == process
    assert not [event for event in events if isinstance(event, Warned) and "anew" in event.message]


def test_an_index_that_the_module_refuses_is_named(tmp_path: Path, worker: WorkerClient, cache: Path) -> None:
    """The worker lives on, as it does on the CPU."""
    task = _task(tmp_path, "return x[i + 1] * 2")
    with (
        pytest.raises(UsageError, match=r"forward failed at indexing.py:12: IndexError: index 64 is out of bounds"),
        kernels.environment(worker, cache, task),
    ):
        pass
    process = worker.process.pid
    with kernels.environment(worker, cache, _task(tmp_path, "return x[i] * 2")):
        assert worker.process.pid == process


def test_a_worker_that_an_assertion_ended_is_started_anew(tmp_path: Path, worker: WorkerClient, cache: Path) -> None:
    """The guard does not see inside operators of other libraries. Values index here: ten times as large, none fits."""
    events: list[object] = []
    task = _task(tmp_path, "return rows(x, (x[:, 0] * 63).long()) * i[0] * 2")
    task = msgspec.structs.replace(task, content=ROWS + task.content)
    with kernels.environment(worker, cache, task, events=events) as opened:
        evaluation = opened.verify_in_full(first_candidate(opened))
        assert evaluation.outcome is Outcome.correct, evaluation.message
    told = [event.message for event in events if isinstance(event, Warned) and "no longer tried" in event.message]
    assert told, events
    assert all("CUDA error" in message for message in told)
