"""EmbeddingBag with mean and padding."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(10000, 64, mode="mean", padding_idx=3)

    def forward(self, ids, offsets):
        return self.bag(ids, offsets)


def get_inputs():
    return [torch.randint(0, 10000, (65536,)), torch.arange(0, 65536, 16)]
