"""Small language models of transformers, in their own file: an export counts calls by the lines of a model's file."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.cache_utils import DynamicCache

LAYERS, KEY_HEADS, CONTEXT, WIDTH = 2, 2, 12, 16
SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": KEY_HEADS,
    "head_dim": WIDTH,
    "max_position_embeddings": 128,
    "attn_implementation": "sdpa",
}


def qwen3() -> torch.nn.Module:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**SIZES)).eval()


class Around(torch.nn.Module):
    """A module that calls a language model."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model


class Prefill(Around):
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        logits: Tensor = self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        return logits


class Decode(Around):
    """One token behind those in the cache."""

    def forward(self, ids: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        cache = DynamicCache()
        for layer in range(LAYERS):
            cache.update(keys[layer], values[layer], layer)
        logits: Tensor = self.model(input_ids=ids, past_key_values=cache, use_cache=True).logits
        return logits


def tokens(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape) * 7 % 50
