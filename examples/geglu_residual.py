"""The pointwise middle of a GEGLU feed-forward block whose projections run elsewhere (Shazeer 2020, "GLU Variants")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


# kernel-assistant: inputs=(torch.randn(1024, 2048), torch.randn(1024, 2048), torch.randn(1024, 2048)) init=(2048,)
class GegluResidual(nn.Module):
    """``residual + scale * (value + value_bias) * gelu(gate + gate_bias)``.

    The biases and the layer scale are vectors over the last dimension. All tensors are ``(tokens, features)``.
    """

    def __init__(self, features: int, layer_scale: float = 0.1) -> None:
        super().__init__()
        self.value_bias = nn.Parameter(0.02 * torch.randn(features))
        self.gate_bias = nn.Parameter(0.02 * torch.randn(features))
        self.scale = nn.Parameter(torch.full((features,), layer_scale))

    def forward(self, value: torch.Tensor, gate: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        hidden = (value + self.value_bias) * F.gelu(gate + self.gate_bias, approximate="tanh")
        return residual + self.scale * hidden
