"""Computes values in an exported graph that depend on no input, parameter or buffer, such as a mask made of `arange`.

A free dimension (of symbolic size) has size 1 in a computed value, because the value is the same everywhere along it. A
value that differs along a free dimension, such as `arange(batch)`, is unknown; but it may be the index into a dimension
along which everything is the same. An operator that is not listed here gives an unknown value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from .constant_nodes import MOST_ELEMENTS
from .operators import is_random, op_name

#: Operators that fill with a number, and which of their operands it is; None for the number in the second column.
_FILLED = {
    "full": 1,
    "new_full": 2,
    "full_like": 1,
    "scalar_tensor": 0,
} | dict.fromkeys(("ones", "new_ones", "ones_like", "zeros", "new_zeros", "zeros_like"))
#: Operators of single elements that torch does not mark as such.
_OF_ELEMENTS = frozenset(
    "__and__.Tensor __or__.Tensor __xor__.Tensor _to_copy to.dtype where.Scalar where.ScalarOther where.ScalarSelf "
    "alias detach lift_fresh_copy contiguous logical_not".split()
)
#: Operators that treat all positions of a dimension alike, unless it is their operand.
_OF_DIMENSIONS = frozenset("unsqueeze transpose.int permute squeeze.dim".split())
#: Operators along one dimension, and which operand that is.
_ALONG = {"cumsum": 1, "select.int": 1, "slice.Tensor": 1, "cat": 1}


class UniformValues:
    """Computes the values of nodes of one graph, on the CPU, when `value` is called for them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[Node, Tensor | None] = {}

    def value(self, wanted: Node) -> Tensor | None:
        """Returns the value of the node `wanted`, with size 1 in symbolic dimensions; None if it depends on an input or
        is otherwise not known."""
        needed = _ancestors(wanted, self._known)
        with torch.no_grad():
            for node in self._graph.nodes:
                if node in needed:
                    self._known[node] = self._computed(node)
        return self._known[wanted]

    def _computed(self, node: Node) -> Tensor | None:
        noted = node.meta.get("val")
        if node.op != "call_function" or not isinstance(noted, Tensor) or is_random(node):
            return None
        target: Any = node.target
        shape = collapsed(noted.shape)
        if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
            return None
        if target.namespace != "aten" or math.prod(shape) > MOST_ELEMENTS:
            return None
        value = self._called(node, target, shape)
        return value if value is not None and (value.shape, value.dtype) == (shape, noted.dtype) else None

    def _called(self, node: Node, target: Any, shape: torch.Size) -> Tensor | None:
        name = op_name(target)
        if name in _FILLED:
            return _filled(node, name, shape)
        if name == "expand":
            source = self._known.get(_node(node.args[0]))
            return None if source is None else source.expand(shape)
        if name == "index.Tensor":
            return self._chosen(node)
        plain = torch.Tag.pointwise in target.tags or name in _OF_ELEMENTS or name in _OF_DIMENSIONS
        if plain or name.partition(".")[0] == "arange" or self._is_along_fixed(node, name):
            return self._run(node, target)
        if name == "slice.Tensor" and str(node.meta["val"].shape) == str(_node(node.args[0]).meta["val"].shape):
            return self._known.get(_node(node.args[0]))
        return None

    def _is_along_fixed(self, node: Node, name: str) -> bool:
        """Whether an operator works along dimensions of fixed size only, so that it can be computed although others are
        symbolic. `name` is the operator's name in an OpGraph."""
        sources = [source.meta["val"] for source in node.all_input_nodes]
        if not all(isinstance(source, Tensor) for source in sources):
            return False
        if name in ("tril", "triu"):
            return all(isinstance(size, int) for source in sources for size in source.shape[-2:])
        if name not in _ALONG:
            return name in ("view", "reshape", "_unsafe_view") and not any(
                is_free(value.shape) for value in (*sources, node.meta["val"])
            )
        position = _ALONG[name]
        dim: Any = node.args[position] if len(node.args) > position else node.kwargs.get("dim", 0)
        # Old empty tensors of one dimension are joined to others of any.
        known = all(-source.dim() <= dim < source.dim() for source in sources)
        return known and all(isinstance(source.shape[dim], int) for source in sources)

    def _run(self, node: Node, target: Any) -> Tensor | None:
        values = {source: self._known.get(source) for source in node.all_input_nodes}
        if any(value is None for value in values.values()):
            return None
        args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda source: values[source])
        here = {"device": torch.device("cpu")} if "device" in kwargs else {}
        result = target(*args, **{**kwargs, **here})
        return result if isinstance(result, Tensor) else None

    def _chosen(self, node: Node) -> Tensor | None:
        """Returns the value of a node that indexes a tensor, `x[i, j]`; None if it is unknown. The index into a
        symbolic dimension of x need not be known, because x is the same everywhere along it."""
        operands: Any = node.args
        source, indices = operands
        value = self._known.get(source)
        if value is None:
            return None
        index_values: list[Tensor | None] = []
        for size, index_node in zip(source.meta["val"].shape, indices, strict=False):
            if index_node is None:
                index_values.append(None)
                continue
            index = index_node.meta["val"]
            if index.dtype not in (torch.int64, torch.int32):
                return None
            known = self._known.get(index_node)
            if not isinstance(size, int):
                known = torch.zeros(collapsed(index.shape), dtype=torch.int64, device="cpu")
            if known is None:
                return None
            index_values.append(known)
        chosen: Tensor = torch.ops.aten.index.Tensor(value, index_values)
        return chosen


def is_free(sizes: Sequence[Any]) -> bool:
    return not all(isinstance(size, int) for size in sizes)


def collapsed(sizes: Sequence[Any]) -> torch.Size:
    """Returns the sizes, with 1 in place of each symbolic size."""
    return torch.Size([size if isinstance(size, int) else 1 for size in sizes])


def _filled(node: Node, name: str, shape: torch.Size) -> Tensor | None:
    position = _FILLED[name]
    number: Any = ("ones" in name) if position is None else node.args[position]
    if not isinstance(number, (bool, int, float)):
        return None
    return torch.full(shape, number, dtype=node.meta["val"].dtype, device="cpu")


def _ancestors(wanted: Node, known: dict[Node, Tensor | None]) -> set[Node]:
    """Returns the node `wanted` and the nodes from which it is computed. The search stops at nodes in `known`: these
    are left out, and so are nodes that are needed only to compute them."""
    nodes: set[Node] = set()
    waiting = [wanted]
    while waiting:
        node = waiting.pop()
        if node not in nodes and node not in known:
            nodes.add(node)
            waiting += node.all_input_nodes
    return nodes


def _node(operand: Any) -> Node:
    assert isinstance(operand, Node)
    return operand
