"""A plan with several kernels runs as one CUDA graph: values, streams, capture by somebody else, simultaneous
callers.
"""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_void_p
from pathlib import Path

import pytest
import torch

from kernel_assistant.targets import cuda
from kernel_assistant.worker.applied.binaries import driver
from kernel_assistant.worker.runner.capture import captured
from kernel_assistant.worker.runner.cuda_driver import Events
from kernel_assistant.worker.runner.executor import BoundPlan, CudaModule, bind

pytestmark = pytest.mark.gpu

#: The second is started in clusters of two blocks, the third with dynamic shared memory beyond 48 KiB.
SOURCE = """
#include <stdint.h>
typedef struct { const float* x; float* o; int64_t n; int64_t k; } args;
#define AT int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x
extern "C" __global__ void plain(const __grid_constant__ args a) { AT; if (i < a.n) a.o[i] = a.x[i] * 2 + a.k; }
extern "C" __global__ void __cluster_dims__(2) pairs(const __grid_constant__ args a) {
  AT; unsigned size; asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size)); if (i < a.n) a.o[i] = a.x[i] + size;
}
extern "C" __global__ void held(const __grid_constant__ args a) {
  extern __shared__ float kept[]; AT; kept[12800 + threadIdx.x] = a.x[i < a.n ? i : 0];
  if (i < a.n) a.o[i] = kept[12800 + threadIdx.x] * 3;
}
"""
SIZE = 1000
NAMES = ["x", "s", "t", "out"]
PLAN = {
    "target": "cuda",
    "dims": ["B"],
    "inputs": [{"name": "x", "dtype": "f32", "shape": ["B"]}],
    "outputs": [{"name": "out", "dtype": "f32", "shape": ["B"]}],
    "scratch": [{"name": name, "dtype": "f32", "shape": ["B"]} for name in ("s", "t")],
    "launches": [
        {
            "symbol": symbol,
            "args": [["x", source], ["o", target], ["n", "B"], ["k", "5"]],
            "grid": ["cdiv(B, 256) * 2", "1", "1"],
            "block": ["256", "1", "1"],
            "shared": str(13056 * 4 if symbol == "held" else 0),
        }
        for symbol, source, target in (("plain", "x", "s"), ("pairs", "s", "t"), ("held", "t", "out"))
    ],
}


@pytest.fixture(scope="module")
def bound(tmp_path_factory: pytest.TempPathFactory) -> BoundPlan:
    folder: Path = tmp_path_factory.mktemp("chain")
    (folder / "chain.cu").write_text(SOURCE)
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    argv = [cuda.compiler(), "-cubin", "-std=c++17", f"-arch={arch}", "chain.cu", "-o", "chain.cubin"]
    subprocess.run(argv, cwd=folder, check=True)
    torch.zeros(1, device="cuda")
    return bind(PLAN, {"B": SIZE}, CudaModule(driver(0), (folder / "chain.cubin").read_bytes()))


class Buffers:
    def __init__(self, bound: BoundPlan, seed: int) -> None:
        random = torch.Generator("cuda").manual_seed(seed)
        found = {name: torch.full((SIZE,), float("nan"), device="cuda") for name in NAMES}
        found["x"] = torch.randint(-99, 99, (SIZE,), device="cuda", generator=random).float()
        self.of = found
        self.pointers = [found[name].data_ptr() for name in bound.names]
        torch.cuda.synchronize()

    def right(self) -> bool:
        torch.cuda.synchronize()
        return torch.equal(self.of["out"], (self.of["x"] * 2 + 5 + 2) * 3)


def test_new_addresses_at_each_call_on_any_stream(bound: BoundPlan) -> None:
    sets = [Buffers(bound, seed) for seed in range(5)]
    streams = [0, torch.cuda.Stream().cuda_stream, torch.cuda.Stream().cuda_stream]
    for number, one in enumerate(sets):
        bound.run(one.pointers, streams[number % 3])
    assert all(one.right() for one in sets)
    assert bound._frames[0]._graph is not None


def test_launches_keep_what_they_were_given(bound: BoundPlan) -> None:
    """The next call sets other addresses while the previous launch may not have begun."""
    sets = [Buffers(bound, seed) for seed in range(64)]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
    for one in sets:
        bound.run(one.pointers, stream.cuda_stream)
    assert all(one.right() for one in sets)


def test_inside_somebodys_capture(bound: BoundPlan) -> None:
    one = Buffers(bound, 1)
    stream, recorded = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded, stream=stream):
        bound.run(one.pointers, stream.cuda_stream)
    one.of["out"].fill_(0)
    recorded.replay()
    assert one.right()
    one.of["x"] += 1
    recorded.replay()
    assert one.right()


def test_captured_calls_run_on_the_values_that_are_there(bound: BoundPlan) -> None:
    """A captured call launches kernels directly, not the plan's own graph; each replay reads the inputs anew."""
    made, sets = driver(0), [Buffers(bound, seed) for seed in range(5)]
    calls = [bound.freeze(one.pointers, stream=made.stream) for one in sets]
    graph = captured(made, lambda stream: [call(stream) for call in calls])
    assert graph is not None and not any(one.right() for one in sets)
    for _ in range(2):
        for one in sets:
            one.of["x"] += 1
        torch.cuda.synchronize()
        assert 0.0 < graph.milliseconds(Events(made)) < 1000.0
        assert all(one.right() for one in sets)


def test_what_cannot_be_captured_leaves_the_stream_usable(bound: BoundPlan) -> None:
    made, one = driver(0), Buffers(bound, 1)

    def waits(stream: int) -> None:
        made.check("cuStreamSynchronize", c_void_p(stream))

    assert captured(made, waits) is None
    bound.freeze(one.pointers, stream=made.stream)(made.stream)
    assert one.right()


def test_frozen_calls_and_many_threads(bound: BoundPlan) -> None:
    sets = [Buffers(bound, seed) for seed in range(8)]
    for call in [bound.freeze(one.pointers) for one in sets]:
        call(0)
    assert all(one.right() for one in sets)

    def once(one: Buffers) -> None:
        driver(0).make_current()
        for _ in range(50):
            bound.run(one.pointers)

    for one in sets:
        one.of["out"].fill_(0)
    torch.cuda.synchronize()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(once, sets))
    assert all(one.right() for one in sets)
