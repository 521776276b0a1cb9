"""Keeps the values of integer inputs that are used as indices in range when the tensors that they index get other
sizes.

The graph shows which inputs these are: the index of a gather or scatter is followed back, through operators that keep
its values, to an input. An index that the module computes itself is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ..symbols import evaluate_size

#: Operators whose result has the values of their first operand.
KEEPS = frozenset(
    "view reshape _unsafe_view flatten unflatten unsqueeze squeeze expand expand_as broadcast_to permute transpose t "
    "slice select narrow clone contiguous alias detach to _to_copy long int view_as repeat".split()
)
#: An index, and the size of the dimension that it indexes (an expression).
Indexed = Iterator[tuple[Any, Any]]


def index_bounds(graph: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Returns, for each integer input of the graph that is used as an index: its name → the sizes (expressions) of the
    dimensions that it indexes."""
    made = {node["name"]: node for node in graph["nodes"]}
    integers = {
        value["name"] for value in graph["inputs"] if value["spec"]["dtype"] in ("i64", "i32", "i16", "i8", "u8")
    }
    bounds: dict[str, list[Any]] = {}
    for node in graph["nodes"]:
        rule = _RULES.get(node["op"].partition(".")[0].removesuffix("_"))
        for operand, size in rule(node, _Shapes(graph, made)) if rule else ():
            name = _root(operand, made)
            if name in integers and size not in bounds.setdefault(name, []):
                bounds[name].append(size)
    return bounds


def in_range(
    declared: torch.Tensor,
    resized: torch.Tensor,
    bounds: list[Any],
    dims: Mapping[str, int],
    base: Mapping[str, int],
) -> torch.Tensor:
    """Returns `resized`, which was made from `declared` for the sizes `dims`, with its values changed to valid indices
    for all dimensions in `bounds`. `base` are the declared sizes; a negative value that is no valid index at these
    sizes is kept, because it is no index (a loss may ignore -100).

    Distinct indices stay distinct if there is room: a permutation stays one, and two writes that went to different
    elements still do. Sorted indices stay sorted, negative ones negative.
    """
    least, before = (min(evaluate_size(size, at) for size in bounds) for at in (dims, base))
    if least <= 0 or not resized.numel():
        return resized
    if declared.numel() > 1 and bool((declared >= 0).all()) and _distinct(declared) and resized.numel() <= least:
        values = resized if _distinct(resized) and int(resized.max()) < least else _ranks(resized)
    else:
        below = torch.where(resized < -before, resized, -1 - (-1 - resized) % least)
        values = torch.where(resized < 0, below, resized % least).to(resized.dtype)
    rising = declared.dim() == 1 and declared.numel() > 1 and bool((declared[1:] >= declared[:-1]).all())
    return values.sort()[0] if rising else values


def _distinct(values: torch.Tensor) -> bool:
    rising = values.flatten().sort()[0]
    return not bool((rising[1:] == rising[:-1]).any())


def _ranks(values: torch.Tensor) -> torch.Tensor:
    """Returns the rank of each value among all in ascending order, counted from 0; each rank occurs once."""
    order = values.flatten().argsort(stable=True)
    ranks = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
    return ranks.to(values.dtype).view(values.shape)


class _Shapes:
    """Looks up the shapes of a graph's values by their names."""

    def __init__(self, graph: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        self._specs = {value["name"]: value["spec"] for value in graph["inputs"]}
        self._specs |= {name: node["spec"] for name, node in made.items()}

    def size(self, operand: Any, dim: Any) -> Any:
        """Returns the size (an expression) of dimension `dim` of `operand`; 0 if it is unknown, so that no index counts
        as valid."""
        if not isinstance(operand, str) or operand[1:] not in self._specs:
            return 0
        shape = self._specs[operand[1:]]["shape"]
        position = dim if isinstance(dim, int) else 0
        return shape[position] if -len(shape) <= position < len(shape) else 0

    def indexed(self, index: Any) -> int:
        """Returns the number of dimensions that one entry of a list of indices takes up in the indexed tensor: 1, or
        the number of dimensions of a boolean mask."""
        spec = self._specs.get(index[1:], {}) if isinstance(index, str) else {}
        return len(spec["shape"]) if spec.get("dtype") == "bool" else 1


def _argument(node: Mapping[str, Any], position: int, name: str) -> Any:
    return node["args"][position] if position < len(node["args"]) else node["kwargs"].get(name)


def _along(node: Mapping[str, Any], shapes: _Shapes) -> Indexed:
    """Rule of index_select, gather, scatter and similar operators, whose arguments are operand, dimension, index.
    Yields their index, and the size of the dimension that it indexes."""
    operand = _argument(node, 0, "self")
    yield _argument(node, 2, "index"), shapes.size(operand, _argument(node, 1, "dim"))


def _take_along(node: Mapping[str, Any], shapes: _Shapes) -> Indexed:
    yield _argument(node, 1, "indices"), shapes.size(_argument(node, 0, "self"), _argument(node, 2, "dim"))


def _embedding(node: Mapping[str, Any], shapes: _Shapes) -> Indexed:
    yield _argument(node, 1, "indices"), shapes.size(_argument(node, 0, "weight"), 0)


def _tensors(node: Mapping[str, Any], shapes: _Shapes) -> Indexed:
    """Rule of index and index_put, whose list of indices has a tensor or None for each dimension of the operand; a
    boolean mask takes up as many dimensions as it has. Yields each index, and the size of the dimension that it
    indexes."""
    items, dim = _argument(node, 1, "indices"), 0
    for item in items if isinstance(items, list | tuple) else ():
        if item is not None:
            yield item, shapes.size(_argument(node, 0, "self"), dim)
        dim += shapes.indexed(item)


def _classes(node: Mapping[str, Any], shapes: _Shapes) -> Indexed:
    """Rule of losses: yields the target, whose values are classes, and the number of classes."""
    yield _argument(node, 1, "target"), shapes.size(_argument(node, 0, "self"), 1)


_RULES: dict[str, Callable[[Mapping[str, Any], _Shapes], Indexed]] = {
    **dict.fromkeys(
        "index_select index_add index_copy index_fill index_reduce gather scatter scatter_add scatter_reduce".split(),
        _along,
    ),
    "take_along_dim": _take_along,
    **dict.fromkeys("embedding embedding_bag _embedding_bag".split(), _embedding),
    **dict.fromkeys("index _unsafe_index index_put _unsafe_index_put _index_put_impl".split(), _tensors),
    **dict.fromkeys("nll_loss nll_loss_nd nll_loss2d nll_loss_forward cross_entropy_loss".split(), _classes),
}


def _root(operand: Any, made: Mapping[str, Any]) -> str:
    """Returns the name of the input from which `operand` is computed by operators that keep its values, such as views;
    "" if there is none. `made` maps the names of the graph's nodes to the nodes."""
    while isinstance(operand, str) and operand.startswith("%"):
        node = made.get(operand[1:])
        if node is None:
            return operand[1:]
        if node["op"].partition(".")[0] not in KEEPS or not node["args"]:
            return ""
        operand = node["args"][0]
    return ""
