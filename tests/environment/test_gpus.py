"""Tests which GPUs are visible, and how a runner learns about them."""

from __future__ import annotations

import pytest

from kernel_assistant.sandbox.system import gpu_env
from kernel_assistant.targets.cuda import _multiprocessors
from kernel_assistant.targets.nvml import visible

IDENTITIES = ["GPU-aa11", "GPU-ab22", "GPU-cc33"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("2,0", [2, 0]),
        (" 1 ", [1]),
        ("", []),
        ("-1", []),
        ("0,7,1", [0]),
        ("1,1", [1]),
        ("GPU-cc33,GPU-aa", [2, 0]),
        ("GPU-a", []),
        ("MIG-1234", [0, 1, 2]),
    ],
)
def test_visible_gpus_are_those_that_cuda_sees(words: str, found: list[int]) -> None:
    assert visible(words, IDENTITIES) == found


def test_a_runner_numbers_gpus_as_its_worker_does() -> None:
    assert gpu_env({"CUDA_VISIBLE_DEVICES": "3"}) == {"CUDA_VISIBLE_DEVICES": "3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert gpu_env({}) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("cores", "capability", "found"), [(6912, (8, 0), 108), (16896, (9, 0), 132), (18176, (8, 9), 142)]
)
def test_multiprocessors_are_counted_by_their_cores(cores: int, capability: tuple[int, int], found: int) -> None:
    class Library:
        NVMLError = OSError

        def nvmlDeviceGetNumGpuCores(self, handle: object) -> int:  # noqa: N802  NVML's own name
            return cores

    assert _multiprocessors(Library(), None, capability) == found
