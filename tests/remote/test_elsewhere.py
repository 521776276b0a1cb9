"""Tests the messages if kernels of another machine cannot run on this one."""

from __future__ import annotations

import pytest

from kernel_assistant.records import encode
from kernel_assistant.remote.elsewhere import cannot_run_here
from kernel_assistant.store import JobOptions, JobRow, JobState
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts
from tests.common.results import result
from tests.common.tasks import task_of


@pytest.fixture
def job(tmp_path):
    """A function: target and architecture → a job whose kernels were built for them."""

    def make(target, arch):
        device = tmp_path / "device.json"
        device.write_bytes(encode(DeviceFacts(target=target, name="A device", arch=arch)))
        name = f"binaries/kernels.{arch}.{'cubin' if target == 'cuda' else 'so'}"
        done = result(target=target, artifacts={"device.json": str(device), name: str(tmp_path / name)})
        task = task_of("/net.py", "")
        return JobRow(id="1", task=task, options=JobOptions(), state=JobState.done, result=done)

    return make


@pytest.mark.skipif(bool(cuda.gpus()), reason="this machine has a GPU")
def test_kernels_for_a_gpu_without_one(job):
    said = cannot_run_here(job("cuda", "sm_90"))
    assert said == "the kernels are for A device (sm_90) and this machine has no NVIDIA GPU: here the original runs"


@pytest.mark.gpu
def test_kernels_for_the_gpu_that_is_here(job):
    arch = cuda.gpus()[0].arch
    assert cannot_run_here(job("cuda", arch)) == ""
    assert arch in cannot_run_here(job("cuda", "sm_20"))


def test_kernels_for_another_processor(job):
    assert cannot_run_here(job("cpu", cpu.architecture())) == ""
    assert f"this machine is {cpu.architecture()}" in cannot_run_here(job("cpu", "riscv64"))


def test_kernels_for_a_lower_level_of_the_same_processor(job):
    if not cpu.architecture().startswith("x86-64"):
        pytest.skip("needs an x86-64 processor")
    assert cannot_run_here(job("cpu", "x86-64")) == ""
