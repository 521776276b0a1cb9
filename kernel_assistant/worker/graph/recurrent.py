"""Corrects the shape of an LSTM's last states in torch.export."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._decomp import decompositions

Layer = Callable[..., tuple[torch.Tensor, tuple[torch.Tensor, ...]]]


@contextlib.contextmanager
def right_states() -> Iterator[None]:
    """Within the block, an LSTM gives fake tensors the shapes that real ones have.

    Without oneDNN (on CUDA, in float64 and float16, with projections) fake tensors take PyTorch's own decomposition,
    whose last states had one dimension too many before 2.13 unless the batch is 1: `hx.squeeze(1)` of [1, B, H].
    """
    original: Layer | None = getattr(decompositions, "one_layer_lstm", None)
    if original is None:  # a later PyTorch without this function
        yield
        return
    decompositions.one_layer_lstm = _mended(original)
    try:
        yield
    finally:
        decompositions.one_layer_lstm = original


def _mended(layer: Layer) -> Layer:
    @functools.wraps(layer)
    def mended(inputs: torch.Tensor, hidden: Any, *args: Any, **kwargs: Any) -> Any:
        steps, states = layer(inputs, hidden, *args, **kwargs)
        return steps, tuple(
            state.squeeze(0) if state.dim() > first.dim() else state
            for state, first in zip(states, hidden, strict=True)
        )

    return mended
