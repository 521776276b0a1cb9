"""Operators of an exported graph: their names, which operands matter, and which operators do nothing or draw random
numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from ..symbols import InexpressibleError

_IDENTITY = {
    "aten.alias.default",
    "aten.detach.default",
    "aten.detach_.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default",
    "aten._to_copy.default",
    "aten.to.dtype",
    "aten.to.device",
    "aten.to.dtype_layout",
    "aten.expand.default",
    "aten.view.default",
    "aten.reshape.default",
}
_DROPOUT = {"aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default"}


def is_identity(node: Node) -> bool:
    """Whether the result of this node equals its first operand, also in dtype, device, sizes and strides. Dropout
    counts unless it is in training mode."""
    target = str(node.target)
    if target in _DROPOUT:
        return not node.args[2]
    if target not in _IDENTITY or not isinstance(node.args[0], Node):
        return False
    value, source = node.meta["val"], node.args[0].meta["val"]
    same = (value.dtype, value.device) == (source.dtype, source.device)
    return same and _text(value.shape) == _text(source.shape) and _text(value.stride()) == _text(source.stride())


def is_random(node: Node) -> bool:
    """Whether an operator can draw random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def draws(node: Node) -> bool:
    """Whether a call draws random numbers: dropout and similar operators do so only in training mode, attention only
    with a dropout probability other than 0."""
    if not is_random(node):
        return False
    given = _arguments(node)
    if given.get("train") is False or given.get("training") is False:
        return False
    share = given.get("dropout_p", given.get("p", given.get("dropout")))
    return bool(share != 0)


def _arguments(node: Node) -> dict[str, Any]:
    """Returns the arguments of a call by their names in the operator's schema, with the default for each that the call
    leaves out."""
    schema = getattr(node.target, "_schema", None)
    taken = schema.arguments if schema is not None else []
    given = dict(zip([one.name for one in taken], node.args, strict=False))
    return {**{one.name: one.default_value for one in taken}, **given, **node.kwargs}


def without_defaults(node: Node) -> tuple[list[Any], dict[str, Any]]:
    """Returns the positional arguments and the keyword arguments of a call, without those that equal their default
    value: versions of torch differ in which defaults they write down."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:  # getitem
        return list(node.args), dict(node.kwargs)
    args = list(node.args)
    while args and _is_default(schema.arguments[len(args) - 1], args[-1]):
        args.pop()
    known = {argument.name: argument for argument in schema.arguments}
    return args, {key: value for key, value in node.kwargs.items() if not _is_default(known[key], value)}


def op_name(target: Any) -> str:
    """Returns the name of an operator in an OpGraph: `aten.add.Tensor` → `add.Tensor`, `mylib.op.default` →
    `mylib::op`, and `getitem` for Python's, which picks one of several results. Raises InexpressibleError for anything
    else."""
    if isinstance(target, torch._ops.OpOverload):
        library, _, name = str(target).removesuffix(".default").partition(".")
        return name if library == "aten" else f"{library}::{name}"
    if getattr(target, "__name__", "") == "getitem":
        return "getitem"
    raise InexpressibleError(f"{getattr(target, '__name__', target)} is not an operator that a graph can hold")


def refuse_changes(node: Node) -> None:
    """Raises InexpressibleError for an operator of another library that changes its operands. In the graph of
    torch.export such an operator is the first argument of a wrapper, `auto_functionalized`."""
    wrapped = node.args[0] if node.args else None
    if str(getattr(node.target, "__name__", "")).startswith("auto_functionalized"):
        raise InexpressibleError(f"{getattr(wrapped, '_name', wrapped)} changes an operand in place")


def _is_default(argument: Any, value: Any) -> bool:
    """Whether a call can leave an argument out: `value` is its default, or the argument (such as cudnn_enable) only
    chooses between implementations. `argument` is an entry of the operator's schema."""
    if argument.name.startswith("cudnn_enable"):
        return True
    return (
        bool(argument.has_default_value())
        and type(value) is type(argument.default_value)
        and bool(value == argument.default_value)
    )


def _text(sizes: Sequence[Any]) -> list[str]:
    return [str(size) for size in sizes]
