"""Prepares `as_strided` for a graph. The operator reads positions of a storage, whatever the shape of its operand; so
the operand of each call is replaced by the value that owns the storage, in whose layout the positions can be found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ..symbols import InexpressibleError
from .real_strides import hint, order_in_memory, with_real_strides

#: In the `meta` of a node: the operands that a graph has instead of the node's own.
OPERANDS = "operands"
_TARGET = torch.ops.aten.as_strided.default


def from_owners(program: ExportedProgram, inputs: Sequence[torch.Tensor]) -> None:
    """Gives each call `as_strided(view, size, stride, offset)` the value that owns the storage as operand: stores in
    `meta[OPERANDS]` (owner, size, stride, offset from the owner's first element). Raises InexpressibleError if the
    layout of the owner does not determine the elements that are read."""
    if not any(node.target is _TARGET for node in program.graph.nodes):
        return
    with_real_strides(program, inputs)
    owners: dict[int, Node] = {}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            owner = owners.setdefault(value.untyped_storage()._cdata, node)
            if node.target is _TARGET:
                node.meta[OPERANDS] = _of_owner(node, owner)


def _of_owner(node: Node, owner: Node) -> tuple[Any, ...]:
    operands: tuple[Any, ...] = node.args
    view, size, stride, *given = operands
    explicit = given[0] if given else node.kwargs.get("storage_offset")
    value, held = view.meta["val"], owner.meta["val"]
    if owner.op == "placeholder" and explicit is not None:
        # An applied call may be given a tensor that begins elsewhere in its storage.
        raise InexpressibleError(
            "as_strided with a storage_offset reads an input's storage from its beginning, wherever the input begins"
        )
    if (
        owner.op != "placeholder"
        and order_in_memory(list(map(hint, held.shape)), list(map(hint, held.stride()))) is None
    ):
        raise InexpressibleError("as_strided reads the storage of a value with gaps")
    if _is_free(held.shape) and not _is_free(_numbers(size)):
        raise InexpressibleError("as_strided of a fixed size, whatever the size of its operand")
    start: Any = value.storage_offset() if explicit is None else _noted(explicit)
    return owner, size, stride, start - held.storage_offset()


def _numbers(sizes: Any) -> list[Any]:
    return [_noted(size) for size in sizes]


def _is_free(sizes: Sequence[Any]) -> bool:
    return any(isinstance(size, torch.SymInt) for size in sizes)


def _noted(operand: Any) -> Any:
    return operand.meta["val"] if isinstance(operand, Node) else operand
