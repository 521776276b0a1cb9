"""Distinguishes calls by their signatures: structure, shapes, strides, dtypes, devices and plain values of the
arguments."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

Key = Any  # a nested tuple, hashable

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_SHORT = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "b1",
}
_MOST_TEXT = 160


class Reader:
    """Reads the arguments or the result of one call. `bytes` is the size of all distinct tensors in them, `devices` the
    set of their device types, and `gradient` says whether one of them requires a gradient."""

    __slots__ = ("bytes", "devices", "gradient", "tensors")

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.devices: set[str] = set()
        self.bytes = 0
        self.gradient = False

    def key(self, value: Any, depth: int = 0) -> Key:
        """Returns a hashable key that depends on the structure of `value`, its plain values, and the shapes, strides,
        dtypes and devices of its tensors, but not on the numbers in the tensors."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, _PLAIN):
            return (type(value).__name__, value)
        if depth > 8:
            return "..."
        kind = type(value).__qualname__
        if isinstance(value, dict):
            return (kind, *((str(name), self.key(item, depth + 1)) for name, item in value.items()))
        if isinstance(value, (tuple, list)):
            return (kind, *(self.key(item, depth + 1) for item in value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return (kind, *((name, self.key(getattr(value, name, None), depth + 1)) for name in names))
        return (kind,)

    def _tensor(self, tensor: torch.Tensor) -> Key:
        device = tensor.device
        self.devices.add(device.type)
        if tensor.requires_grad:
            self.gradient = True
        if tensor.layout is not torch.strided:
            return (type(tensor).__name__, str(tensor.layout), tuple(tensor.shape), tensor.dtype)
        if not any(tensor is one for one in self.tensors):
            self.tensors.append(tensor)
            self.bytes += spanned_bytes(tensor)
        return (_class_of(tensor), tuple(tensor.shape), tensor.stride(), tensor.dtype, device.type)


def spanned_bytes(tensor: torch.Tensor) -> int:
    """Returns the bytes of the distinct elements: an expanded dimension (stride 0) counts as one element."""
    if 0 in tensor.stride():
        sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not size]
        return math.prod(sizes) * tensor.element_size()
    return tensor.numel() * tensor.element_size()


def text(key: Key) -> str:
    """Returns a key as readable text, such as `(f32[8, 128], None, {mask: b1[8]})`, cut after 160 characters."""
    full_text = _text(key)
    return full_text if len(full_text) <= _MOST_TEXT else full_text[: _MOST_TEXT - 1] + "…"


def kind(key: Key) -> Key:
    """Returns the key with each tensor's sizes and strides replaced by the order of its dimensions in memory. Calls of
    equal kind may become workloads (sets of shapes) of one task."""
    if _is_tensor(key):
        return (key[0], _order(key[1], key[2]), key[3], key[4])
    return tuple(kind(item) if isinstance(item, tuple) else item for item in key) if isinstance(key, tuple) else key


def _text(key: Key) -> str:
    if not isinstance(key, tuple):
        return str(key)
    if _is_tensor(key):
        dtype = _SHORT.get(key[3], str(key[3]).removeprefix("torch."))
        name = "" if key[0] == "Tensor" else f"{key[0]} "
        layout = "" if key[2] == _contiguous(key[1]) else "/" + ",".join(map(str, key[2]))
        return f"{name}{dtype}{list(key[1])}{layout}"
    name, rest = key[0], key[1:]
    if name in ("tuple", "list"):
        return "(" + ", ".join(map(_text, rest)) + ")"
    if rest and all(isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) for item in rest):
        body = ", ".join(f"{item[0]}: {_text(item[1])}" for item in rest)
        return f"{{{body}}}" if name == "dict" else f"{name}({body})"
    if len(rest) == 1 and not isinstance(rest[0], tuple):
        return repr(rest[0]) if isinstance(rest[0], str) else str(rest[0])
    return str(name)


def _is_tensor(key: Key) -> bool:
    return isinstance(key, tuple) and len(key) == 5 and isinstance(key[3], torch.dtype)


def _class_of(tensor: torch.Tensor) -> str:
    cls = type(tensor)
    return "Tensor" if cls is torch.Tensor or cls is torch.nn.Parameter else cls.__qualname__


def _order(shape: tuple[int, ...], strides: tuple[int, ...]) -> Key:
    """Returns a key for the order of a tensor's dimensions in memory. Without gaps and overlaps it is the number of
    dimensions, followed, unless the tensor is contiguous, by the dimensions from the outermost to the innermost;
    otherwise it is the strides. Dimensions of size 1 do not count."""
    order = tuple(sorted(range(len(shape)), key=lambda dim: (shape[dim] == 1, -strides[dim], dim)))
    real = [dim for dim in order if shape[dim] != 1]
    dense = tuple(strides[dim] for dim in real) == _contiguous(tuple(shape[dim] for dim in real))
    if not dense:
        return strides
    return (len(shape), *(() if real == sorted(real) else real))


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
