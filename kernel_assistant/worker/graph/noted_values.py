"""Computes the fake values that nodes of an exported graph carry (`meta["val"]`) again after a call was changed."""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


def renewed(graph: Graph, changed: Node) -> dict[Node, Any] | None:
    """Returns new fake values for the node `changed` and the nodes computed from it, but only for those whose sizes or
    strides differ from `meta["val"]`. None if one of these nodes is not an operator, but for example has a nested
    graph. The graph is not changed.

    Views are computed by `reshape`, because the new strides may not allow a view.
    """
    values: dict[Node, Any] = {}
    for node in graph.nodes:
        if node.op == "call_function" and (node is changed or not values.keys().isdisjoint(node.all_input_nodes)):
            if not isinstance(node.target, torch._ops.OpOverload) and node.target is not operator.getitem:
                return None
            value = _value(node, values)
            if _layout(value) != _layout(node.meta.get("val")):
                values[node] = value
    return values


def _value(node: Node, known: dict[Node, Any]) -> Any:
    args, kwargs = map_arg(
        (node.args, node.kwargs), lambda operand: known[operand] if operand in known else operand.meta["val"]
    )
    target: Any = torch.ops.aten.reshape.default if node.target in VIEWS else node.target
    with detect_fake_mode((args, kwargs)) or contextlib.nullcontext():
        return target(*args, **kwargs)


def _layout(value: Any) -> list[tuple[list[str], list[str]]]:
    """Returns (sizes, strides) of each tensor in `value`, as texts. The stride of a dimension of size 1 is left out."""
    layout = []
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            sizes = [str(size) for size in leaf.shape]
            strides = [str(stride) for size, stride in zip(sizes, leaf.stride(), strict=True) if size != "1"]
            layout.append((sizes, strides))
    return layout
