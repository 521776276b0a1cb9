"""Computes fake results (FakeTensors, which have no data) of activations and of batch norm in inference quickly, while
a module is traced with a symbolic batch size.

Without this, torch's FakeTensorMode finds the shape of a result by running the operator's Python decomposition over
symbolic sizes, which takes tens of milliseconds for each operator: half of the time of tracing MobileNetV2. The results
here have the shape, the dtype and the strides of their input.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._ops import OpOverload

_aten = torch.ops.aten
#: Activations with a version in place.
WITH_IN_PLACE = tuple("relu hardtanh silu hardswish hardsigmoid leaky_relu elu sigmoid tanh".split())
_BATCH_NORM = _aten._native_batch_norm_legit_no_training.default
#: Makes a fake result, given the FakeTensorMode.
Fast = Callable[..., Any]


@contextlib.contextmanager
def fast_fakes() -> Iterator[None]:
    """Context manager: within the block, torch uses the fake results of this file. If this torch has no table of fast
    fake results, nothing changes."""
    try:
        from torch._subclasses.fake_impls import get_fast_op_impls
    except ImportError:
        yield
        return
    known: dict[OpOverload, Fast] = get_fast_op_impls()
    added = {op: fast for op, fast in _fast_results().items() if op not in known}
    known.update(added)
    try:
        yield
    finally:
        for op in added:
            known.pop(op, None)


def _fast_results() -> dict[OpOverload, Fast]:
    new = [getattr(_aten, name).default for name in (*WITH_IN_PLACE, "gelu")]
    in_place = [getattr(_aten, f"{name}_").default for name in WITH_IN_PLACE]
    results = {op: _elementwise(op, _like) for op in new if op in decomposition_table}
    results |= {op: _elementwise(op, lambda _, x: x) for op in in_place if op in decomposition_table}
    return results | {_BATCH_NORM: _batch_norm}


def _elementwise(op: OpOverload, result: Callable[[Any, torch.Tensor], Any]) -> Fast:
    def fast(mode: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if is_plain(x):
            return result(mode, x)
        with mode:
            return decomposition_table[op](x, *args, **kwargs)

    return fast


def _batch_norm(mode: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if not is_plain(x) or len(args) < 4 or kwargs:
        with mode:
            return decomposition_table[_BATCH_NORM](x, *args, **kwargs)
    mean = args[2]
    with mode:  # the CPU gives no statistics for inference
        statistics = [mean.new_empty(0) if x.device.type == "cpu" else torch.empty_like(mean) for _ in range(2)]
    return (_like(mode, x), *statistics)


def is_plain(x: torch.Tensor) -> bool:
    """Whether an elementwise result certainly has the strides of `x`: a floating-point tensor that is contiguous or
    channels-last."""
    return x.is_floating_point() and (x.is_contiguous() or _is_channels_last(x))


def _is_channels_last(x: torch.Tensor) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.dim() in formats and x.is_contiguous(memory_format=formats[x.dim()])


def _like(mode: Any, x: torch.Tensor) -> Any:
    from torch._subclasses.fake_tensor import FakeTensor

    meta = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    return FakeTensor(mode, meta, device=x.device)
