"""Computes values in an exported graph that are the same for all inputs."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .operators import is_random

#: Larger values are not computed.
MOST_ELEMENTS = 1 << 26


def constant(module: GraphModule, node: Any, seen: dict[Node, Any]) -> Any:
    """Returns the value of a node that depends on parameters, buffers and numbers only; None if it depends on an input,
    is random or is too large. Anything that is not a node is returned as it is. `seen` caches the values of nodes
    between calls."""
    if not isinstance(node, Node):
        return node
    if node not in seen:
        seen[node] = _evaluate(module, node, seen)
    return seen[node]


def _evaluate(module: GraphModule, node: Node, seen: dict[Node, Any]) -> Any:
    if node.op == "get_attr":
        value: Any = module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value
    if node.op != "call_function" or is_random(node):
        return None
    shape = node.meta["val"].shape if isinstance(node.meta.get("val"), torch.Tensor) else ()
    if not all(isinstance(size, int) for size in shape) or math.prod(shape) > MOST_ELEMENTS:
        return None
    values = {source: constant(module, source, seen) for source in node.all_input_nodes}
    if any(value is None for value in values.values()):
        return None
    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda source: values[source])
    with torch.no_grad():
        return node.target(*args, **kwargs)  # type: ignore[operator]
