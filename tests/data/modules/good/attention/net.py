"""A module in a package, with a relative import and a dataclass for its settings."""

from dataclasses import dataclass

import torch
from torch import nn

from .scores import scores


@dataclass
class Settings:
    causal: bool = True


# kernel-assistant: inputs=(torch.randn(3, 5, 8), torch.randn(3, 5, 8)) init=(Settings(causal=True),)
class Scores(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings

    def forward(self, query, key):
        found = scores(query, key)
        if self.settings.causal:
            length = query.shape[1]
            allowed = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
            found = found.masked_fill(~allowed, float("-inf"))
        return found.softmax(-1)
