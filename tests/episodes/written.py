"""An RMS norm with hand-written answers as a teacher would give them: right ones of different speed."""

from __future__ import annotations

from kernel_assistant.records import InputSource, KernelTask, Workload

MODULE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 384))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.scale

def get_inputs():
    return [torch.randn(640, 384)]
"""

#: Writes its row as often as the `set` line says; D0 and C0 are the graph's canonical names.
CPU = """// set: PASSES=1
// launch: k0(x0, p0, out0, rows=B)
#include "ka/rows.h"
extern "C" void k0(const k0_args* a) {
  ka::rows(a->rows, D0, [=](int64_t r) {
    const float* x = a->x0 + r * D0;
    const float s0 = ka_rsqrt((float)(ka::fold_row<ka::sum>(D0, [](float v) { return v * v; }, x) / D0) + C0);
    for (int pass = 0; pass < PASSES; ++pass) {
      ka::map_row(D0, [=](float v, float p0) { return v * s0 * p0; }, a->out0 + r * D0, x, a->p0);
    }
  });
}
"""
SLOW = CPU.replace("PASSES=1", "PASSES=1000")
CUDA = """// set: T=128 V=4 I=1
// scratch: w0 f32[B, 2]
// launch: k0(x0, p0, out0, rows=B) grid=cdiv(B, 2) block=T
// launch: k1(x0, out1, w0, rows=B) grid=B block=256
#include "ka/rows.cuh"
extern "C" __global__ void __launch_bounds__(T) k0(const __grid_constant__ k0_args a) {
  ka::row<T, V, I> x;
  x.load(a.x0 + blockIdx.x * D0, D0);
  const float s0 = ka_rsqrt(x.fold<ka::sum>([](float v) { return v * v; }) / D0 + C0);
  x.store(a.out0 + blockIdx.x * D0, [=](float v, float p0, float p1) { return ka_relu(v) * s0 * p0 + p1; }, a.p0, a.p1);
}
extern "C" __global__ void __launch_bounds__(T) k1(const __grid_constant__ k1_args a) {
  const int64_t i = blockIdx.x % D0;
  const float s1 = ka_get(a.w0[i]);
  const float s2 = ka_abs(s1);
  if (threadIdx.x == 0) ka_put(a.out0[i], s2);
  ka::pointwise<4>(a.rows, [](float v) { return v > 0.5f ? v : 2.0f; }, a.out1, a.x0);
}
"""


def task() -> KernelTask:
    return KernelTask(
        path="/nowhere/model.py",
        content=MODULE,
        class_name="Model",
        source=InputSource.get_inputs,
        workloads=(Workload(),),
        module_name="model",
    )
