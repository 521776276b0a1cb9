"""How much of its operands a graph has to read. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .inputs import DTYPES
from .symbols import evaluate_size

#: Operators that read as much of their first operand as they give.
PARTIAL = frozenset({"embedding", "gather", "index", "index_select", "narrow", "select", "slice", "take_along_dim"})
_BYTES = {name: dtype.itemsize for dtype, name in DTYPES.items()}


def bytes_to_read(graph: Mapping[str, Any], name: str, whole: int, dims: Mapping[str, int]) -> int:
    """Of the `whole` bytes of value `name`: all, unless every reader takes a part (rows of a table, a slice)."""
    reference, taken = f"%{name}", 0
    if name in graph["outputs"]:
        return whole
    for node in graph["nodes"]:
        operands = [*node["args"], *node["kwargs"].values()]
        if not any(operand == reference or _holds(operand, reference) for operand in operands):
            continue
        first, *others = operands
        if node["op"].partition(".")[0] not in PARTIAL or first != reference or reference in others:
            return whole
        taken += _spec_bytes(node["spec"], dims)
    return min(whole, taken)


def _holds(operand: object, reference: str) -> bool:
    return isinstance(operand, (list, tuple)) and reference in operand


def _spec_bytes(spec: Mapping[str, Any], dims: Mapping[str, int]) -> int:
    return _BYTES[spec["dtype"]] * math.prod(evaluate_size(size, dims) for size in spec["shape"])
