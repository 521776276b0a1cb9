"""The results of the CUDA headers on machines without a GPU: indices, tails, fragments and pipelines, compared with
float64.
"""

from __future__ import annotations

import ctypes
import platform

import pytest
import torch

from tests.skills.emulated import Emulated, compile_emulated
from tests.skills.harness import Bound
from tests.skills.programs import programs

PROGRAMS = programs()
LEFT_OUT = ("gate_f16", "layer_norm_f16", "warp_softmax_f16", "turned_f16", "softmax_bf16")
NAMES = [name for name in PROGRAMS if name not in LEFT_OUT]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the emulator was written for x86-64")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_emulated([PROGRAMS[name] for name in NAMES], tmp_path_factory.mktemp("emulated"))


@pytest.mark.builds
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_float64(name: str, library: ctypes.CDLL) -> None:
    program = PROGRAMS[name]
    for seed, dims in enumerate(program.sizes):
        bound = Bound(program, dims, library, "cpu", seed, bind=Emulated)
        bound.run(0)
        assert bound.error() <= program.bound, dims


def test_what_is_not_finite_stays_so(library: ctypes.CDLL) -> None:
    program = PROGRAMS["product_f32_accurate_rr"]
    bound = Bound(program, {"M": 64, "N": 64, "K": 64}, library, "cpu", bind=Emulated)
    bound.tensors["x0"][3, 5], bound.tensors["x0"][7, 9] = float("nan"), float("inf")
    bound.tensors["x1"].abs_().add_(0.1)
    bound.run(0)
    assert bound.output[3].isnan().all() and bound.output[7].isposinf().all()
    assert torch.isfinite(bound.output[:3]).all()
