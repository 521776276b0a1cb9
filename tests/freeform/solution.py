"""A KernelBench-style solution as people write it: reference and candidate in one file, with C++ for the CPU."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

FEATURES = 512


class Model(nn.Module):
    """Linear layer without bias, then GELU."""

    def __init__(self, features: int, scale: float):
        super().__init__()
        self.linear = nn.Linear(features, features, bias=False)
        self.register_buffer("shift", torch.full((features,), 0.1))
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x * self.scale + self.shift) * self.linear.weight[0]


cpp_source = r"""
#include <torch/extension.h>
#include "ka/pointwise.h"

torch::Tensor scaled_gelu(torch::Tensor x, torch::Tensor shift, torch::Tensor row, double scale) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto out = torch::empty_like(x);
  const float *in = x.data_ptr<float>(), *add = shift.data_ptr<float>(), *by = row.data_ptr<float>();
  float* to = out.data_ptr<float>();
  const int64_t n = x.numel(), columns = x.size(-1);
  for (int64_t i = 0; i < n; i++)
    to[i] = ka_gelu(in[i] * (float)scale + add[i % columns]) * by[i % columns];
  return out;
}
"""

gelu = load_inline(name="scaled_gelu_ext", cpp_sources=cpp_source, functions=["scaled_gelu"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, features: int, scale: float):
        super().__init__()
        self.linear = nn.Linear(features, features, bias=False)
        self.register_buffer("shift", torch.full((features,), 0.1))
        self.scale = scale
        self.gelu = gelu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        row = self.linear.weight[0].contiguous()
        assert math.prod(x.shape) == x.numel()
        return self.gelu.scaled_gelu(x.contiguous(), self.shift, row, self.scale)


def get_inputs():
    return [torch.randn(128, FEATURES)]


def get_init_inputs():
    return [FEATURES, 1.5]


if __name__ == "__main__":
    torch.testing.assert_close(ModelNew(*get_init_inputs())(*get_inputs()).shape, torch.Size([128, FEATURES]))
