"""Qwen3-1.7B as transformers has it, with random weights in bf16, in the two halves of its use.

The workloads are those of github.com/ianbarber/kernelbench-agents-vs-compile.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.cache_utils import DynamicCache, DynamicLayer

LAYERS, KEY_HEADS, WIDTH, WORDS = 28, 8, 128, 151936


def model(layers: int = LAYERS) -> Qwen3ForCausalLM:
    """The model on the GPU where there is one, since initialising on the processor takes a minute."""
    config = Qwen3Config(
        vocab_size=WORDS,
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=KEY_HEADS,
        head_dim=WIDTH,
        max_position_embeddings=40960,
        rope_theta=1_000_000.0,
        tie_word_embeddings=True,
        rms_norm_eps=1e-6,
        attn_implementation="sdpa",
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            return Qwen3ForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


class Prefill(nn.Module):
    """Words [batch, length] → logits [batch, length, words]."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.model = model(layers)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=words, use_cache=False).logits


class Decode(nn.Module):
    """A word [batch, 1] behind those of a cache: logits [batch, 1, words], and the cache with its keys and values.

    `keys` and `values` have a tensor [batch, key heads, length, width] for each layer.
    """

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.model = model(layers)

    def forward(
        self, words: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        cache = DynamicCache()
        cache.layers = [_layer(key, value) for key, value in zip(keys, values, strict=True)]
        found = self.model(input_ids=words, past_key_values=cache, use_cache=True)
        return found.logits, [layer.keys for layer in cache.layers], [layer.values for layer in cache.layers]


def _layer(key: torch.Tensor, value: torch.Tensor) -> DynamicLayer:
    """A layer of a cache that has these. `update` would copy them."""
    layer = DynamicLayer()
    layer.lazy_initialization(key, value)
    layer.keys, layer.values = key, value
    return layer


def prompt(length: int, batch: int = 1) -> list[torch.Tensor]:
    """Inputs of Prefill."""
    return [torch.randint(0, WORDS, (batch, length))]


def cached(length: int, batch: int, layers: int = LAYERS) -> list[object]:
    """Inputs of Decode."""
    shape = (batch, KEY_HEADS, length, WIDTH)
    keys, values = ([torch.randn(shape, dtype=torch.bfloat16) for _ in range(layers)] for _ in range(2))
    return [torch.randint(0, WORDS, (batch, 1)), keys, values]
