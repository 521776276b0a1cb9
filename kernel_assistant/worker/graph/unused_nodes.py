"""Removes nodes that no output of an exported graph needs."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from .operators import is_random

#: Checks a dtype that other operators rely on; without them it checks nothing.
_CHECK = torch.ops.aten._assert_tensor_metadata.default


def remove_unused(graph: Graph) -> None:
    """Erases calls of torch's own operators that have no side effect and whose results are not used. Checks of sizes
    stay, with the nodes that they read."""
    needed: set[Node] = set()
    for node in reversed(graph.nodes):
        if node in needed or not _is_free_of_effects(node):
            needed.update((node, *node.all_input_nodes))
    for node in reversed(graph.nodes):
        if node not in needed and (node.target is not _CHECK or node.all_input_nodes[0] not in needed):
            graph.erase_node(node)


def _is_free_of_effects(node: Node) -> bool:
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    return target is _CHECK or not (target._schema.is_mutable or is_random(node) or node.is_impure())
