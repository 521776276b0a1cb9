"""Modules that break their device with some inputs: the worker is started anew, the inputs are left out, and neither
the job nor a candidate pays for it.

The module raises PyTorch's error itself, so that these tests need no GPU; on one, `test_gpu_device_lost.py` has a
device-side assert.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import UsageError
from kernel_assistant.events import Warned
from kernel_assistant.records import Outcome
from tests.judge import kernels

ERROR = 'torch.AcceleratorError("CUDA error: device-side assert triggered")'
FORWARD = "        return x * torch.rsqrt"


def _module(condition: str) -> str:
    broken = f"        if not torch.compiler.is_exporting() and ({condition}):\n            raise {ERROR}\n{FORWARD}"
    return kernels.MODULE.replace(FORWARD, broken)


def _restarts(events: list[object]) -> list[str]:
    return [event.message for event in events if isinstance(event, Warned) and "no longer tried" in event.message]


@pytest.mark.parametrize(
    ("condition", "inputs"),
    [
        ("float(x.abs().max()) > 20", ["workload 0 x10"]),
        ("len(x) == 1", ["workload 0 declared B=1"]),
        ("float(x.mean()) > 3 or len(x) == 37", ["workload 0 declared B=37", "workload 0 shifted"]),
        ("float(x.mean()) == 1", ["workload 0 ones"]),
    ],
)
def test_inputs_that_break_the_device_are_left_out(
    condition: str, inputs: list[str], worker: WorkerClient, cache: Path
) -> None:
    events: list[object] = []
    with kernels.environment(worker, cache, kernels.task(_module(condition)), events=events) as opened:
        before = worker.process.pid
        evaluation = opened.verify_in_full(kernels.candidate())
        assert evaluation.outcome is Outcome.correct, evaluation.message
        assert worker.process.pid != before
        again = opened.verify_in_full(kernels.candidate(("/*END*/", "/* another */")))
        assert again.outcome is Outcome.correct
        wrong = kernels.candidate(("x[i] * k * a->w[i]", "x[i] * k"))
        assert opened.verify_in_full(wrong).outcome is Outcome.incorrect
    told = _restarts(events)
    assert all("device-side assert" in message for message in told)
    assert sorted(message.partition(" (")[2].partition(":")[0] for message in told) == sorted(inputs)


def test_inputs_that_open_the_task_may_break_it_too(worker: WorkerClient, cache: Path) -> None:
    """Whether the output is a constant is found with other values, before there is a judge."""
    events: list[object] = []
    text = _module("float(x.min()) < 0").replace("torch.randn(48, 256)", "torch.rand(48, 256)")
    assert "torch.rand(48" in text
    with kernels.environment(worker, cache, kernels.task(text), events=events) as opened:
        assert opened.verify_in_full(kernels.candidate()).outcome is Outcome.correct
    assert any("workload 0 normal" in message for message in _restarts(events))


def test_declared_inputs_that_break_the_device_end_the_job_in_one_line(worker: WorkerClient, cache: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"Norm.forward failed at norm.py:\d+: AcceleratorError: CUDA error") as caught,
        kernels.environment(worker, cache, kernels.task(_module("True"))),
    ):
        pass
    assert "\n" not in caught.value.cause
    with kernels.environment(worker, cache) as opened:
        assert opened.verify_in_full(kernels.candidate()).outcome is Outcome.correct
