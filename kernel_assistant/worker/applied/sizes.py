"""Finds the sizes of a call: matches concrete shapes with symbolic ones, and evaluates expressions over plain or
symbolic (SymInt) integers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..runner import plan as plans

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "cdiv": lambda a, b: (a + b - 1) // b,
    "min": torch.sym_min,
    "max": torch.sym_max,
}


class ShapeMismatch(ValueError):
    """The shapes of a call do not fit the symbolic shapes of the plan."""


def match_shapes(symbolic: Sequence[Sequence[str]], shapes: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Returns, for each name of a dimension, the size with which every symbolic shape equals its concrete one. Raises
    ShapeMismatch if there is none.

    Names that stand alone are bound first. Then each expression with one unknown is solved for it, as if it were
    linear."""
    pairs: list[tuple[str, Any]] = []
    for want, got in zip(symbolic, shapes, strict=True):
        if len(want) != len(got):
            raise ShapeMismatch("rank")
        pairs.extend(zip(want, got, strict=True))
    dims: dict[str, Any] = {}
    for expression, size in pairs:
        if expression.isidentifier() and expression not in dims:
            dims[expression] = size
    for expression, size in pairs:
        _solve(expression, size, dims)
    for expression, size in pairs:
        if evaluate(expression, dims) != size:
            raise ShapeMismatch(f"{expression} is {size}")
    return dims


def evaluate(expression: str, dims: dict[str, Any]) -> Any:
    """Returns the value of an integer expression over `dims`, which maps names to sizes; it is symbolic if a size is.
    Raises ShapeMismatch for an unknown name, PlanError if the text is not an integer expression."""
    if expression.isdigit():
        return int(expression)
    return _evaluate(_parse(expression), dims)


def names(expression: str) -> set[str]:
    """Returns the names of the dimensions that an expression uses."""
    return {n.id for n in ast.walk(_parse(expression)) if isinstance(n, ast.Name)} - set(_CALLS)


def _parse(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


def _solve(expression: str, size: Any, dims: dict[str, Any]) -> None:
    unknown = [] if expression.isdigit() else [name for name in names(expression) if name not in dims]
    if len(unknown) != 1:
        return
    (name,) = unknown
    zero, one = (evaluate(expression, {**dims, name: value}) for value in (0, 1))
    if one != zero:
        dims[name] = (size - zero) // (one - zero)


def _evaluate(node: ast.expr, dims: dict[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in dims:
            raise ShapeMismatch(f"size {node.id} does not follow from the inputs")
        return dims[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left, dims), _evaluate(node.right, dims))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, dims)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        return _CALLS[node.func.id](*[_evaluate(argument, dims) for argument in node.args])
    raise plans.PlanError(f"not an integer expression: {ast.dump(node)}")
