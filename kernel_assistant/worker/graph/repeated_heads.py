"""Recognizes keys and values whose heads are repeated for groups of query heads: head h of the result is head h //
group of the operand.

x[:, :, None].expand(B, H, group, S, E).reshape(B, H * group, S, E)        x.repeat_interleave(group, 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from .noted_values import VIEWS

_aten = torch.ops.aten
_RESHAPES = (*VIEWS, _aten.reshape.default)
#: Operators that give the whole of their operand if the sizes stay as they are, the second ones in its memory.
_COPIES = (_aten.clone.default, _aten.contiguous.default)
_WHOLE = (_aten.alias.default, _aten.slice.Tensor)
_RANK = 4


def unrepeated(node: Node) -> Node | None:
    """Returns the node x [B, H, S, E] whose heads `node` [B, H * group, S, E] repeats, with group > 1; None if `node`
    repeats no heads."""
    node = _through(node, _COPIES + _WHOLE)
    if node.target is _aten.repeat_interleave.self_int:
        return _repeated(node, node.args[0])
    if node.target not in _RESHAPES:
        return None
    expanded = _through(_source(node), _COPIES + _WHOLE)
    if expanded.target is not _aten.expand.default:
        return None
    single = _through(_source(expanded), _COPIES + _WHOLE)
    if single.target is not _aten.unsqueeze.default:
        return None
    x, sizes = _source(single), _sizes(expanded)
    wanted = _sizes(x)
    if len(wanted) != _RANK or [*sizes[:2], *sizes[3:]] != wanted or single.args[1] not in (2, 2 - _RANK - 1):
        return None
    return _repeated(node, x)


def _repeated(node: Node, x: Any) -> Node | None:
    """Returns the node x, without aliases in front of it, if `node` has a multiple of x's heads and otherwise the same
    sizes; None if not."""
    if not isinstance(x, Node) or len(_sizes(x)) != _RANK:
        return None
    many, few = (value.meta["val"].shape[1] for value in (node, x))
    others = [sizes[:1] + sizes[2:] for sizes in (_sizes(node), _sizes(x))]
    if not isinstance(many, int) or not isinstance(few, int) or others[0] != others[1]:
        return None
    return _through(x, _WHOLE) if few and many > few and many % few == 0 else None


def _through(node: Node, targets: Sequence[Any]) -> Node:
    while node.target in targets and _sizes(node) == _sizes(_source(node)):
        node = _source(node)
    return node


def _source(node: Node) -> Node:
    source = node.args[0]
    assert isinstance(source, Node)
    return source


def _sizes(node: Node) -> list[str]:
    return [str(size) for size in node.meta["val"].shape]
