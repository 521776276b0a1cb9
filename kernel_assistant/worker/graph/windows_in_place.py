"""Corrects in-place writes through `unfold` in an exported program. To remove in-place operators, torch.export undoes
the view by `unfold_backward`, which sets elements that no window covers to zero (pytorch/pytorch#198102). The nodes
that are added here give these elements their old values back."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from ..symbols import InexpressibleError

_ATEN = torch.ops.aten
#: In the `meta` of a node of `unfold`: a program may be read again.
_DONE = "kept_between"


def keep_between_windows(program: ExportedProgram) -> None:
    """Adds nodes to the program that give the elements outside of all `unfold` windows their old values back after an
    in-place write through the windows. Call it before in-place operators are removed.

    Raises InexpressibleError if the unfolded dimension has a symbolic size.
    """
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.target is _ATEN.unfold.default and not node.meta.get(_DONE):
            node.meta[_DONE] = True
            for writer in _writers(node):
                _restore(graph, node, writer)


def _writers(view: Node) -> list[Node]:
    """Returns the in-place operators that write through the node `view`, or through views of it."""
    writers: list[Node] = []
    for user in view.users:
        schema = getattr(user.target, "_schema", None)
        first = schema.arguments[0].alias_info if schema is not None and schema.arguments else None
        if first is None or user.args[:1] != (view,):
            continue
        writers += [user] if first.is_write else []
        writers += _writers(user)
    return writers


def _restore(graph: Graph, window: Node, writer: Node) -> None:
    operands: tuple[Any, ...] = window.args
    base, dim, size, step = operands
    whole = base.meta["val"]
    length, dim = whole.shape[dim], dim % whole.dim()
    if not isinstance(length, int):
        raise InexpressibleError("unfold, written in place, of a dimension of free size")
    end = (length - size) // step * step + size
    if end == length and size >= step:
        return
    with graph.inserting_before(writer):
        before = _call(graph, _ATEN.clone.default, base)
        positions = _call(graph, _ATEN.arange.default, length, device=whole.device)
        covered = _call(graph, _ATEN.lt.Scalar, _call(graph, _ATEN.remainder.Scalar, positions, step), size)
        if end < length:
            covered = _call(graph, _ATEN.logical_and.default, covered, _call(graph, _ATEN.lt.Scalar, positions, end))
        covered = _call(graph, _ATEN.view.default, covered, [-1, *[1] * (whole.dim() - 1 - dim)])
    with graph.inserting_after(writer):
        kept = _call(graph, _ATEN.where.self, covered, base, before)
    with graph.inserting_after(kept):
        _call(graph, _ATEN.copy_.default, base, kept)


def _call(graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
    return graph.call_function(target, args, kwargs)
