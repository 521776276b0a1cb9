"""A Llama model for training. Its weights have Hugging Face's names; a token attends only to tokens of its own
conversation, because a row of the batch may contain several.

Computes the same as `transformers.LlamaForCausalLM` (a test compares the logits), in a form whose layers can be
compiled one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernel_assistant.serving.convert.shape import ModelShape

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

#: The shape of the next shipped model: 12.6 M parameters.
SHIPPED = ModelShape(
    vocabulary=6144,
    width=384,
    inner=768,
    layers=8,
    heads=6,
    kv_heads=2,
    head_width=64,
    context=4096,
    theta=10000.0,
    epsilon=1e-5,
    tied=True,
)
#: Learns the form of an answer in minutes on two CPU cores; its heads are as wide as those of the shipped model.
SMALL = ModelShape(
    vocabulary=6144,
    width=128,
    inner=256,
    layers=4,
    heads=2,
    kv_heads=1,
    head_width=64,
    context=4096,
    theta=10000.0,
    epsilon=1e-5,
    tied=True,
)

#: For the smoke recipe: the smallest shape that learns within a minute to copy an operator's name and a shape from a
#: prompt.
TINY = replace(SMALL, width=96, inner=192, layers=3, heads=2, head_width=48)

#: Which earlier tokens a token attends to: those of its own conversation. Bool of shape (B, 1, T, T), or blocks.
Mask: TypeAlias = "Tensor | BlockMask"


def dense_mask(documents: Tensor) -> Tensor:
    """Returns a causal attention mask that does not cross conversations: a bool tensor (B, 1, T, T), for any device.
    `documents` (B, T) has for each token the number of its conversation."""
    length = documents.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=documents.device).tril()
    return (documents[:, None, :, None] == documents[:, None, None, :]) & causal


def block_mask(documents: Tensor) -> BlockMask:
    """Returns the mask of `dense_mask` as a BlockMask for FlexAttention, which skips blocks of 128 × 128 that are all
    masked. For CUDA, with compiled layers."""

    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (documents[row, query] == documents[row, key])

    rows, length = documents.shape
    make = _block_masks(compiled=documents.is_cuda)
    return make(visible, rows, None, length, length, device=documents.device)


#: Set when the first block mask is made: importing FlexAttention loads the compiler, two seconds that a stage's
#: `--help` and a plan save.
_flex_attention: Callable[..., Any] | None = None


@cache
def _block_masks(*, compiled: bool) -> Callable[..., BlockMask]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    global _flex_attention  # noqa: PLW0603 - a name that compiled layers read, as they would read an import
    _flex_attention = flex_attention
    return torch.compile(create_block_mask, dynamic=False) if compiled else create_block_mask


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
    """Returns the attention (B, heads, T, d) of queries (B, heads, T, d) over keys and values (B, kv_heads, T, d).
    `mask` comes from `dense_mask` or `block_mask`; the latter needs compiled layers on CUDA."""
    if isinstance(mask, Tensor):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
    assert _flex_attention is not None
    attended = _flex_attention(query, key, value, block_mask=mask, enable_gqa=True)
    assert isinstance(attended, Tensor)
    return attended


class Norm(nn.Module):
    """RMS norm over the last dimension, computed in float32 and returned in the type of the input."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.width))
        self.epsilon = shape.epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return (self.weight * wide).to(x.dtype)


class SelfAttention(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.head_width = shape.head_width
        self.q_proj = nn.Linear(shape.width, shape.heads * shape.head_width, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.kv_heads * shape.head_width, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.kv_heads * shape.head_width, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_width, shape.width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Mask) -> Tensor:
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = rotated(query, cosine, sine), rotated(key, cosine, sine)
        return self.o_proj(attend(query, key, value, mask).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape)
        self.self_attn = SelfAttention(shape)
        self.post_attention_layernorm = Norm(shape)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Mask) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cosine, sine, mask)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Body(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape)


class Llama(nn.Module):
    """The whole model, with weights in float32 and random initial values. `state_dict` has the names and shapes of a
    Hugging Face checkpoint whose output layer shares the weights of the embedding."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        # As in GPT-2: projections into the residual stream start smaller the more layers there are.
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                added = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * shape.layers) if added else 1))

    def compile_layers(self) -> None:
        """Compiles each layer with torch.compile. The layers share their code, so that one compilation serves all."""
        for layer in self.model.layers:
            layer.compile(dynamic=False)

    def hidden(self, tokens: Tensor, mask: Mask, dtype: torch.dtype = torch.float32) -> Tensor:
        """Returns the hidden states (B, T, width) after the last norm, for `tokens` (B, T). `mask` comes from
        `dense_mask` or `block_mask`; `dtype` is that of the residual stream."""
        cosine, sine = rotations(self.shape, tokens.shape[1], tokens.device)
        x = self.model.embed_tokens(tokens).to(dtype)
        for layer in self.model.layers:
            x = layer(x, cosine, sine, mask)
        return self.model.norm(x)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.model.embed_tokens.weight)


def rotations(shape: ModelShape, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns the cosines and sines of the rotary embedding for the positions below `length`, (length, head_width)
    each."""
    half = torch.arange(0, shape.head_width, 2, dtype=torch.float32, device=device) / shape.head_width
    angles = torch.outer(torch.arange(length, dtype=torch.float32, device=device), shape.theta**-half)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return (x * cosine + torch.cat([-second, first], dim=-1) * sine).to(x.dtype)
