"""The input layer of a BERT encoder."""

from __future__ import annotations

import torch
from torch import nn


# kernel-assistant: inputs=(torch.randint(0, 8192, (16, 256)), torch.randint(0, 2, (16, 256))) init=(8192, 512)
class TextEmbedding(nn.Module):
    """Word, position and segment embeddings, added and normalised.

    ``(batch, tokens)`` of word ids and of segment ids → ``(batch, tokens, features)``.
    """

    def __init__(self, words: int, features: int, longest: int = 512, segments: int = 2) -> None:
        super().__init__()
        self.word = nn.Embedding(words, features, padding_idx=0)
        self.position = nn.Embedding(longest, features)
        self.segment = nn.Embedding(segments, features)
        self.norm = nn.LayerNorm(features, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("positions", torch.arange(longest), persistent=False)

    def forward(self, words: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        positions = self.positions[: words.shape[1]]
        embedded = self.word(words) + self.position(positions) + self.segment(segments)
        return self.dropout(self.norm(embedded))
