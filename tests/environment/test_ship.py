"""Tests binaries for every shipped architecture: they are compiled by nvcc in the sandbox, but not run."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kernel_assistant.environment.builds.ship import LEFT_OUT, ship
from kernel_assistant.errors import MissingError
from kernel_assistant.records import BufferSpec, Candidate, Launch, Plan
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nvcc")]

PLAIN = """#include "plan.h"
extern "C" __global__ void twice(const __grid_constant__ twice_args a) {
  extern __shared__ float row[];
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < a.n) { row[threadIdx.x] = a.x[i]; a.y[i] = 2.0f * row[threadIdx.x]; }
}
"""
H200 = DeviceFacts(target="cuda", name="NVIDIA H200", arch="sm_90")


def twice(target: str, **launch: Any) -> Plan:
    """The plan of a kernel that doubles N values."""
    x, y = (BufferSpec(name=name, dtype="f32", shape=("N",)) for name in "xy")
    launches = (Launch(symbol="twice", args=(("x", "x"), ("y", "y"), ("n", "N")), **launch),)
    return Plan(target=target, dims=("N",), inputs=(x,), outputs=(y,), launches=launches)


def candidate(source: str = PLAIN, shared: str = "1024") -> Candidate:
    grid = {"grid": ("cdiv(N, 256)", "1", "1"), "block": ("256", "1", "1")}
    return Candidate(plan=twice("cuda", shared=shared, **grid), sources={"twice.cu": source})


def shipped(one: Candidate, cache: Path, device: DeviceFacts = H200, cancelled: bool = False):
    cancel = threading.Event()
    if cancelled:
        cancel.set()
    return ship(one, device, {"N": 1000}, sandbox=choose("auto"), cache_dir=cache, cancel=cancel)


def test_every_architecture_but_the_device_s_own_is_built(tmp_path):
    made = shipped(candidate(), tmp_path)
    assert sorted(made.binaries) == ["kernels.sm_80.cubin", "kernels.sm_89.cubin"] and made.left_out == {}
    assert LEFT_OUT not in made.files()
    assert all(content.startswith(b"\x7fELF") for content in made.binaries.values())
    assert made.binaries["kernels.sm_80.cubin"] != made.binaries["kernels.sm_89.cubin"]


def test_clusters_are_left_out_before_9_0(tmp_path):
    clustered = PLAIN.replace("__global__ void", "__global__ void __cluster_dims__(2, 1, 1)")
    made = shipped(candidate(clustered), tmp_path)
    assert made.binaries == {} and sorted(made.left_out) == ["sm_80", "sm_89"]
    assert all("does not compile" in why for why in made.left_out.values())
    assert json.loads(made.files()[LEFT_OUT]) == made.left_out


def test_shared_memory_counts_at_the_declared_sizes(tmp_path):
    made = shipped(candidate(shared="N*128"), tmp_path)
    assert sorted(made.binaries) == ["kernels.sm_80.cubin"]
    assert made.left_out == {"sm_89": "twice needs 128000 bytes of shared memory in a block, sm_89 has 101376"}


def test_another_device_gets_its_own_and_all_three(tmp_path):
    ampere = DeviceFacts(target="cuda", name="NVIDIA A10", arch="sm_86")
    assert len(shipped(candidate(), tmp_path, ampere).binaries) == 3


def test_limits_are_those_of_the_programming_guide():
    made = {arch: cuda.shared_bytes_per_block(arch) >> 10 for arch in ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")}
    assert made == {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_120": 99}


def test_a_cancel_leaves_them_out_and_not_the_result(tmp_path):
    made = shipped(candidate(), tmp_path, cancelled=True)
    assert made.binaries == {} and sorted(made.left_out) == ["sm_80", "sm_89"] and all(made.left_out.values())


def test_a_compiler_that_is_gone_leaves_them_out_and_not_the_result(tmp_path, monkeypatch):
    def gone():
        raise MissingError("nvcc is gone", "")

    monkeypatch.setattr(cuda, "compiler", gone)
    made = shipped(candidate(), tmp_path)
    assert made.binaries == {} and set(made.left_out.values()) == {"nvcc is gone"}
