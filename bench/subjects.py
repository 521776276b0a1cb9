"""The kernels used in measurements: a trivial one, and a realistic gated RMS norm, for both targets."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import BufferSpec, Candidate, InputSource, KernelTask, Launch, Plan, Workload
from kernel_assistant.targets.detect import detect

TRIVIAL = {
    "cpu": """#include "plan.h"
extern "C" void twice(const twice_args* a) {
  #pragma omp parallel for simd if (a->count > 32768)
  for (int64_t i = 0; i < a->count; i++) a->o[i] = 2.0f * a->x[i] + 1.0f;
}
""",
    "cuda": """#include "plan.h"
extern "C" __global__ void twice(const __grid_constant__ twice_args a) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < a.count) a.o[i] = 2.0f * a.x[i] + 1.0f;
}
""",
}

ROWS = {"cpu": 512, "cuda": 8192}
WIDTH = {"cpu": 1024, "cuda": 4096}

MODULE = """
import torch
from torch import nn

class GatedNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x, gate):
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        return y * nn.functional.silu(gate)

def get_inputs():
    return [torch.randn({rows}, {width}), torch.randn({rows}, {width})]

def get_init_inputs():
    return [{width}]
"""

#: The first `extra` rows are computed twice: more work of the same kind.
NORM = {
    "cpu": """#include "plan.h"
#include <math.h>
extern "C" void gated_norm(const gated_norm_args* a) {
  #pragma omp parallel for
  for (int64_t row = 0; row < a->rows + a->extra; row++) {
    const int64_t r = row % a->rows;
    const float* x = a->x + r * WIDTH;
    const float* g = a->g + r * WIDTH;
    float* o = a->o + r * WIDTH;
    float sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int i = 0; i < WIDTH; i++) sum += x[i] * x[i];
    const float k = 1.0f / sqrtf(sum / WIDTH + 1e-6f);
    #pragma omp simd
    for (int i = 0; i < WIDTH; i++) o[i] = x[i] * k * a->w[i] * (g[i] / (1.0f + expf(-g[i])));
  }
}
""",
    "cuda": """#include "plan.h"
extern "C" __global__ void __launch_bounds__(256) gated_norm(const __grid_constant__ gated_norm_args a) {
  __shared__ float part[8];
  const int64_t r = blockIdx.x % a.rows;
  const float4* x = (const float4*)(a.x + r * WIDTH);
  const float4* g = (const float4*)(a.g + r * WIDTH);
  const float4* w = (const float4*)a.w;
  float4* o = (float4*)(a.o + r * WIDTH);
  float4 v[WIDTH / 1024];
  float s = 0;
  #pragma unroll
  for (int i = 0; i < WIDTH / 1024; i++) {
    v[i] = x[threadIdx.x + i * 256];
    s += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
  }
  for (int m = 16; m; m >>= 1) s += __shfl_xor_sync(~0u, s, m);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
  __syncthreads();
  s = 0;
  for (int i = 0; i < 8; i++) s += part[i];
  const float k = rsqrtf(s / WIDTH + 1e-6f);
  #pragma unroll
  for (int i = 0; i < WIDTH / 1024; i++) {
    const float4 y = g[threadIdx.x + i * 256], u = w[threadIdx.x + i * 256];
    float4 q;
    q.x = v[i].x * k * u.x * (y.x / (1 + expf(-y.x)));
    q.y = v[i].y * k * u.y * (y.y / (1 + expf(-y.y)));
    q.z = v[i].z * k * u.z * (y.z / (1 + expf(-y.z)));
    q.w = v[i].w * k * u.w * (y.w / (1 + expf(-y.w)));
    o[threadIdx.x + i * 256] = q;
  }
}
""",
}


def trivial(target: str, mark: int = 0, count: int = 1 << 20) -> Candidate:
    """y = 2 x + 1 over a vector; each `mark` gives a different source text."""
    launch = Launch(
        symbol="twice",
        args=(("x", "x0"), ("o", "out0"), ("count", str(count))),
        grid=(f"cdiv({count}, 256)", "1", "1"),
        block=("256", "1", "1"),
    )
    plan = Plan(
        target=target,
        dims=(),
        inputs=(_f32("x0", (str(count),)),),
        outputs=(_f32("out0", (str(count),)),),
        launches=(launch,),
    )
    return Candidate(plan=plan, sources={_file("twice", target): f"// {mark}\n{TRIVIAL[target]}"}, origin="bench")


def norm(target: str, mark: int = 0, extra: int = 0) -> Candidate:
    """A handwritten gated RMS norm."""
    width = str(WIDTH[target])
    rows = ("B", width)
    launch = Launch(
        symbol="gated_norm",
        args=(("x", "x0"), ("g", "x1"), ("w", "p0"), ("o", "out0"), ("rows", "B"), ("extra", str(extra))),
        grid=(f"B + {extra}", "1", "1"),
        block=("256", "1", "1"),
    )
    plan = Plan(
        target=target,
        dims=("B",),
        inputs=(_f32("x0", rows), _f32("x1", rows), _f32("p0", (width,))),
        outputs=(_f32("out0", rows),),
        launches=(launch,),
        schedule="by hand",
    )
    source = f"// {mark}\n#define WIDTH {width}\n{NORM[target]}"
    return Candidate(plan=plan, sources={_file("norm", target): source}, origin="bench")


def norm_task(target: str) -> KernelTask:
    return KernelTask(
        path="/bench/gated_norm.py",
        content=MODULE.format(rows=ROWS[target], width=WIDTH[target]),
        class_name="GatedNorm",
        source=InputSource.get_inputs,
        workloads=(Workload(),),
        module_name="gated_norm",
        target=target,
    )


@contextmanager
def norm_environment(target: str, cache: Path | None = None) -> Iterator[Environment]:
    """An environment with the norm open; it and its worker end with the block."""
    with tempfile.TemporaryDirectory(prefix="ka-bench-") as folder:
        worker = WorkerClient(sys.executable, log=Path(folder, "worker.log"))
        try:
            with open_environment(
                norm_task(target),
                device=detect(target),
                worker=worker,
                sandbox_mode="auto",
                cache_dir=cache or Path(folder, "cache"),
                cancel=threading.Event(),
                emit=lambda event: None,
            ) as environment:
                yield environment
        finally:
            worker.close()


def _f32(name: str, shape: tuple[str, ...]) -> BufferSpec:
    return BufferSpec(name=name, dtype="f32", shape=shape)


def _file(stem: str, target: str) -> str:
    return f"{stem}.{'cu' if target == 'cuda' else 'cpp'}"
