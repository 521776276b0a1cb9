"""An RMS norm with right answers of different speed, written by hand, and a text as the generator writes it."""

from __future__ import annotations

from kernel_assistant.records import KernelTask
from tests.common.tasks import task_of

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
#: As the generator writes it for a graph of two parts.
CUDA = """// parts: n0 n1 n2 n3 n4 n5; n6
// schedule: part0: rows/warp block=256 items=5 lanes=32 vec=2; part1: pointwise block=256 vec=1
// scratch: between0 f32[B, 2]
// launch: rows(x0, x1, out0, out1=between0, dim_B=B) grid=cdiv(B, 8) block=256
// launch: part1_pointwise(n4=between0, out0=out1, dim_B=B) grid=B block=256
#include "plan.h"
#include "ka_cuda.cuh"

extern "C" __global__ void __launch_bounds__(256) rows(const __grid_constant__ rows_args a) {
  const int64_t dim_B = a.dim_B;
  const int R = D0;
  const int64_t o = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
  if (o >= dim_B) return;
  const int first = threadIdx.x % 32 * 2;
  const float* __restrict__ x0 = a.x0 + (int64_t)D0 * o;
  const float* __restrict__ x1 = a.x1 + (o % D0);
  float* __restrict__ out0 = a.out0 + (int64_t)D0 * o;
  float* __restrict__ out1 = a.out1 + o;
  float r1a = 0;
  float l_x0[5][2];
  #pragma unroll
  for (int n = 0; n < 5; ++n) {
    const int e = first + n * 64;
    ka_row_load<2, 0, true>(l_x0[n], x0, e, R);
    for (int k = 0; k < 2; ++k) {
      const float t_x0 = ka_get(l_x0[n][k]);
      const float t0 = t_x0 * t_x0;
      if (e + k < R) r1a += t0;
    }
  }
  const float all_r1a = ka_reduce<0, 32, 1, ka_sum>(r1a, (float)0);
  const float s4 = ka_rsqrt(all_r1a / (float)D1 + C0);
  const float s_x1 = ka_get(x1[0]);
  #pragma unroll
  for (int n = 0; n < 5; ++n) {
    const int e = first + n * 64;
    float s_out0[2];
    for (int k = 0; k < 2; ++k) {
      const float t_x0 = ka_get(l_x0[n][k]);
      const float t5a = t_x0 * s4 + 0.5f;
      const float t5 = ka_max(t5a, s_x1);
      ka_put(s_out0[k], ka_relu(t5));
    }
    ka_row_store<2, 0, true>(out0, e, R, s_out0);
  }
  if (first == 0) ka_put(out1[0], s4);
}

extern "C" __global__ void __launch_bounds__(256) part1_pointwise(const __grid_constant__ part1_pointwise_args a) {
  const int64_t i = blockIdx.x;
  const float t4 = ka_get(a.n4[i]);
  const float t6 = ka_abs(t4);
  if (threadIdx.x == 0) ka_put(a.out0[i], t6);
}
"""


def task() -> KernelTask:
    return task_of("/nowhere/model.py", MODULE, "Model", module_name="model")
