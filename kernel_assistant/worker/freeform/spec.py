"""The message to a free-form runner: Python values as JSON, tensors as raw bytes. No pickle, because neither side
trusts the other.

blob := u32 header bytes | header (UTF-8 JSON) | raw bytes of each tensor of header["tensors"], in order
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable
from typing import Any

import torch

PLAIN = (bool, int, float, str, type(None))


class NotPlainError(TypeError):
    """A value that cannot be sent to a runner, because it is neither plain data nor a tensor."""


def encode_tree(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Returns a nested value (lists, tuples, dicts of plain values) in a form that JSON can hold. `leaf` encodes
    special values, such as tensors, and returns None for all others.

    Raises NotPlainError for a value that neither `leaf` nor this function can encode.
    """
    special = leaf(value)
    if special is not None:
        return special
    if type(value) in PLAIN:
        return {"plain": repr(value) if isinstance(value, float) else value, "float": isinstance(value, float)}
    if isinstance(value, (torch.dtype, torch.device)):
        return {"torch": str(value).removeprefix("torch."), "device": isinstance(value, torch.device)}
    if type(value) in (list, tuple, torch.Size):
        return {"items": [encode_tree(item, leaf) for item in value], "list": type(value) is list}
    if type(value) is dict:
        return {"pairs": [[encode_tree(key, leaf), encode_tree(item, leaf)] for key, item in value.items()]}
    raise NotPlainError(f"{type(value).__name__} is neither a tensor nor a plain value")


def decode_tree(data: Any, leaf: Callable[[Any], Any]) -> Any:
    """Returns the value that `encode_tree` encoded as `data`; `leaf` decodes what the encoder's `leaf` returned."""
    if "plain" in data:
        return float(data["plain"]) if data["float"] else data["plain"]
    if "torch" in data:
        return torch.device(data["torch"]) if data["device"] else getattr(torch, data["torch"])
    if "items" in data:
        items = [decode_tree(item, leaf) for item in data["items"]]
        return items if data["list"] else tuple(items)
    if "pairs" in data:
        return {decode_tree(key, leaf): decode_tree(item, leaf) for key, item in data["pairs"]}
    return leaf(data)


class TensorCollector:
    """Collects the tensors that `pack` sends after the header; `add` returns the JSON value that refers to a tensor,
    `leaf` the same or None for anything else."""

    def __init__(self) -> None:
        self.held: list[torch.Tensor] = []

    def add(self, tensor: torch.Tensor) -> dict[str, int]:
        self.held.append(tensor.detach().cpu().contiguous())
        return {"tensor": len(self.held) - 1}

    def leaf(self, value: Any) -> dict[str, int] | None:
        return self.add(value) if isinstance(value, torch.Tensor) else None


def pack(header: dict[str, Any], tensors: TensorCollector) -> bytes:
    """Returns one block of bytes with `header`, which must be JSON data, and the tensors that it refers to."""
    shapes = [[str(held.dtype).removeprefix("torch."), list(held.shape), held.nbytes] for held in tensors.held]
    head = json.dumps({**header, "tensors": shapes}, separators=(",", ":")).encode()
    raw = [ctypes.string_at(held.data_ptr(), held.nbytes) if held.nbytes else b"" for held in tensors.held]
    return b"".join((struct.pack("<I", len(head)), head, *raw))


def unpack(blob: bytes) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Returns the header and the tensors (on the CPU) from the bytes that `pack` made."""
    (length,) = struct.unpack_from("<I", blob)
    header = json.loads(blob[4 : 4 + length])
    at, tensors = 4 + length, []
    for dtype, shape, size in header["tensors"]:
        kind = getattr(torch, dtype)
        part = bytearray(blob[at : at + size])
        flat = torch.frombuffer(part, dtype=kind) if size else torch.empty(0, dtype=kind)
        tensors.append(flat.reshape(shape))
        at += size
    return header, tensors
