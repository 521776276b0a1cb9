"""A worker uses no more than its share of a GPU's memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_assistant.environment.measuring import GPU_SHARE
from kernel_assistant.environment.worker_client import DeviceOutOfMemory, WorkerClient
from kernel_assistant.records import Numerics
from kernel_assistant.source.build import build_task
from kernel_assistant.worker.process.gpu_share import VARIABLE, own_share, share_of
from tests.judge import kernels
from tests.worker.opened import module_text

TASK = module_text("return (x[:, None] * x).sum(1)", "torch.randn(SIZE)")


@contextmanager
def _worker(folder: Path, share: str) -> Iterator[WorkerClient]:
    """A worker with this share of a GPU."""
    worker = WorkerClient(sys.executable, log=folder / "log", env={VARIABLE: share})
    try:
        yield worker
    finally:
        worker.kill()


def test_a_share_is_a_part_of_a_whole() -> None:
    assert share_of("") is share_of(" ") is None
    assert (share_of("0.05"), share_of("1")) == (0.05, 1.0)
    for text in ("0", "-0.5", "1.5", "5%", "half", "nan"):
        with pytest.raises(ValueError, match=r"could not|is not in"):
            share_of(text)


def test_what_is_no_share_is_ignored_and_said_once(monkeypatch, capsys) -> None:
    monkeypatch.setenv(VARIABLE, "much")
    own_share.cache_clear()
    try:
        assert own_share() is own_share() is None
    finally:
        own_share.cache_clear()
    assert capsys.readouterr().err.count("GPU_SHARE is ignored") == 1


def test_who_starts_workers_and_they_themselves_call_it_the_same() -> None:
    assert VARIABLE == GPU_SHARE


def test_on_the_cpu_a_share_changes_nothing(tmp_path: Path) -> None:
    with _worker(tmp_path, "0.000001") as worker:
        _open(worker, "cpu", 64, tmp_path)


@pytest.mark.gpu
def test_a_reference_beyond_the_share_is_refused_and_the_worker_goes_on(tmp_path: Path) -> None:
    with _worker(tmp_path, "0.02") as worker:
        # 16 GiB of one value, of a share of 3 GiB on the largest GPUs there are.
        with pytest.raises(DeviceOutOfMemory):
            _open(worker, "cuda", 65536, tmp_path)
        _open(worker, "cuda", 64, tmp_path)


def _open(worker: WorkerClient, target: str, size: int, folder: Path) -> None:
    text = TASK.replace("SIZE", str(size))
    task = build_task("/nowhere/task.py", target=target, numerics=Numerics.kernelbench, text=text)
    with kernels.environment(worker, folder, task, nominal=False) as environment:
        assert environment.baseline(compiled=False).eager_ms > 0
