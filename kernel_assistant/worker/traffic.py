"""How much of its operands a graph has to read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .symbols import evaluate_size

#: Operators that read as much of their first operand as they give.
PARTIAL = frozenset({"embedding", "gather", "index", "index_select", "narrow", "select", "slice", "take_along_dim"})
#: Operators that give each element of their operand once, elsewhere or with another type.
MOVED = frozenset(
    {"_to_copy", "_unsafe_view", "alias", "clone", "contiguous", "detach", "flip", "permute", "reshape", "roll"}
    | {"squeeze", "t", "transpose", "unsqueeze", "view"}
)


def elements_to_read(graph: Mapping[str, Any], dims: Mapping[str, int]) -> dict[str, int]:
    """Of every value that is read: its elements without which the outputs cannot be computed, or more of them.

    Goes from the outputs backwards: an elementwise operator needs as many elements of an operand as are needed of its
    result, a slice as many as it gives, any other operator all. Several readers' elements are added up.
    """
    specs = {value["name"]: value["spec"] for value in (*graph["inputs"], *graph["nodes"])}
    sizes = {name: _elements(spec, dims) for name, spec in specs.items() if spec and "shape" in spec}
    needed = {name: sizes[name] for name in graph["outputs"] if name in sizes}
    for node in reversed(graph["nodes"]):
        own = needed.get(node["name"], sizes.get(node["name"], 0))
        kind, first = node["op"].partition(".")[0], (node["args"] or [None])[0]
        whole = kind not in MOVED and not _is_elementwise(node["op"])
        for operand in _references([*node["args"], *node["kwargs"].values()]):
            if operand not in sizes:
                continue
            partial = kind in PARTIAL and first == f"%{operand}"
            taken = sizes[operand] if whole and not partial else own
            needed[operand] = min(sizes[operand], needed.get(operand, 0) + taken)
            first = None  # the same value among the other operands is not what a part is taken of
    return needed


def _references(operand: object) -> Iterator[str]:
    if isinstance(operand, str) and operand.startswith("%"):
        yield operand[1:]
    elif isinstance(operand, (list, tuple)):
        for one in operand:
            yield from _references(one)


def _is_elementwise(op: str) -> bool:
    name, _, overload = op.partition(".")
    found = getattr(getattr(torch.ops.aten, name, None), overload or "default", None)
    return found is not None and torch.Tag.pointwise in found.tags


def _elements(spec: Mapping[str, Any], dims: Mapping[str, int]) -> int:
    return math.prod(evaluate_size(size, dims) for size in spec["shape"])
