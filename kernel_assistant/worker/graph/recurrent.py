"""Makes torch.export compute only one step of recurrent layers on fake tensors, and gives their results the correct
shapes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._decomp import decompositions
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

#: `layer(inputs, hidden, …)`: inputs of shape (steps, batch, features), the results of all steps and the last states.
Layer = Callable[..., tuple[torch.Tensor, Any]]


@contextlib.contextmanager
def right_states() -> Iterator[None]:
    """Context manager: within the block, RNNs, GRUs and LSTMs on fake tensors have results of the same shapes as on
    real tensors, and compute one step only.

    On fake tensors PyTorch runs its own decompositions (for LSTMs only without oneDNN: on CUDA, in float64 and float16,
    with projections). These compute every step, which takes more than 90 s for two directions of 512 steps. Before
    torch 2.13 an LSTM's last states had one dimension too many unless the batch is 1, by `hx.squeeze(1)` of [1, B, H].
    """
    # A later PyTorch may lack these functions.
    changes = {"one_layer_lstm": lambda layer: _of_one_step(_mended(layer)), "one_layer_rnn": _of_one_step}
    originals = {name: getattr(decompositions, name) for name in changes if hasattr(decompositions, name)}
    for name, layer in originals.items():
        setattr(decompositions, name, changes[name](layer))
    try:
        yield
    finally:
        for name, layer in originals.items():
            setattr(decompositions, name, layer)


def _mended(layer: Layer) -> Layer:
    @functools.wraps(layer)
    def mended(inputs: torch.Tensor, hidden: Any, *args: Any, **kwargs: Any) -> Any:
        steps, states = layer(inputs, hidden, *args, **kwargs)
        return steps, tuple(
            state.squeeze(0) if state.dim() > first.dim() else state
            for state, first in zip(states, hidden, strict=True)
        )

    return mended


def _of_one_step(layer: Layer) -> Layer:
    """Wraps a recurrent layer so that it computes only the first step where only shapes are needed: on fake tensors
    outside of tracing. If that step leaves the dtypes and shapes of the states as they are, the other steps have the
    same shape; otherwise all steps are computed."""

    @functools.wraps(layer)
    def short(inputs: torch.Tensor, hidden: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(inputs, FakeTensor) and get_proxy_mode() is None and len(inputs) > 1:
            step, states = layer(inputs[:1], hidden, *args, **kwargs)
            if list(map(_dtype_and_shape, _each(states))) == list(map(_dtype_and_shape, _each(hidden))):
                return step.new_empty((len(inputs), *step.shape[1:])), states
        return layer(inputs, hidden, *args, **kwargs)

    return short


def _each(states: Any) -> tuple[torch.Tensor, ...]:
    return (states,) if isinstance(states, torch.Tensor) else tuple(states)


def _dtype_and_shape(state: torch.Tensor) -> tuple[torch.dtype, torch.Size]:
    return state.dtype, state.shape
