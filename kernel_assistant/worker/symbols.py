"""Converts torch's symbolic sizes to text, as integer expressions over named dimensions, and computes the value of an
expression.

An expression has integers, names, `+ - * //` and parentheses; a divisor is a positive integer. Torch's expressions are
sympy trees; only their structure is read, so that nothing here depends on a version of sympy.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_FLOOR = ("FloorDiv", "CleanDiv")
_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


class InexpressibleError(ValueError):
    """Something in a module that a graph cannot express, such as a size that depends on the values of a tensor."""


class Symbols:
    """Gives names to torch's symbols, in order of first appearance: B, B2, B3."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}

    @property
    def names(self) -> list[str]:
        return list(self._names.values())

    def add(self, size: Any) -> None:
        """Gives a name to every symbol of `size` (an int or a SymInt) that has none."""
        for symbol in sorted(_tree(size).free_symbols, key=str) if not isinstance(size, int) else []:
            self._names.setdefault(symbol, "B" if not self._names else f"B{len(self._names) + 1}")

    def name(self, symbol: Any) -> str | None:
        return self._names.get(symbol)

    def text(self, size: Any) -> str:
        """Returns `size`, an int or a SymInt, as the text of an expression, such as "B*16". Raises InexpressibleError
        if it has other operations or symbols without a name."""
        if isinstance(size, int):
            return str(int(size))
        return self._sum(_tree(size))

    def value(self, size: Any, dims: Mapping[str, int]) -> int:
        """Returns the value of `size`, an int or any symbolic size of torch, if the dimensions have the sizes `dims`.
        Raises InexpressibleError if it depends on values of tensors."""
        if isinstance(size, int):
            return int(size)
        tree = _tree(size)
        if any(symbol not in self._names for symbol in tree.free_symbols):
            raise InexpressibleError(f"{tree} depends on values")
        return int(tree.subs({symbol: dims[self._names[symbol]] for symbol in tree.free_symbols}))

    def _sum(self, tree: Any) -> str:
        tree = tree.expand()
        numerator, denominator = tree.as_numer_denom()
        if denominator != 1:
            return f"{_grouped(self._sum(numerator))}//{_positive(denominator)}"
        if not tree.is_Add:
            return self._product(tree)
        terms = sorted(tree.args, key=lambda term: (bool(term.is_Integer), _negative(term), self._product(term)))
        terms.sort(key=_negative)
        text = self._product(terms[0])
        for term in terms[1:]:
            text += f"-{self._product(-term)}" if _negative(term) else f"+{self._product(term)}"
        return text

    def _product(self, tree: Any) -> str:
        if _negative(tree) and not tree.is_Integer:
            return f"(0-{self._product(-tree)})"
        if not tree.is_Mul:
            return self._factor(tree)
        factors = [self._factor(factor) for factor in tree.args if not factor.is_Integer]
        numbers = [str(int(factor)) for factor in tree.args if factor.is_Integer]
        return "*".join([*sorted(f"({text})" if "//" in text else text for text in factors), *numbers])

    def _factor(self, tree: Any) -> str:
        if tree.is_Integer:
            return str(int(tree))
        if tree.is_Symbol and tree in self._names:
            return self._names[tree]
        if tree.is_Add:
            return f"({self._sum(tree)})"
        if tree.is_Pow and tree.args[1].is_Integer and int(tree.args[1]) > 0:
            return "*".join([_grouped(self._sum(tree.args[0]))] * int(tree.args[1]))
        if tree.func.__name__ in _FLOOR:
            return f"{_grouped(self._sum(tree.args[0]))}//{_positive(tree.args[1])}"
        raise InexpressibleError(f"{tree} cannot be written with + - * //")


def evaluate_size(text: str, dims: Mapping[str, int]) -> int:
    """Returns the value of an expression, e.g. `evaluate_size("B*16", {"B": 8}) == 128`. Raises ValueError if it has
    other names or operations."""
    return _evaluate(ast.parse(text, mode="eval").body, dims)


def solve_dims(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns the sizes of dimensions by name, computed from pairs (expression, size). Each expression must be linear
    in at most one name. Raises ValueError if the pairs contradict each other or leave a name without a size."""
    pairs, dims = list(pairs), dict[str, int]()
    for text, size in pairs:
        names = {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}
        if len(names) == 1 and not names & dims.keys():
            (name,) = names
            offset = evaluate_size(text, {name: 0})
            slope = evaluate_size(text, {name: 1}) - offset
            if slope:
                dims[name] = (size - offset) // slope
    for text, size in pairs:
        if evaluate_size(text, dims) != size:
            raise ValueError(f"size {size} does not fit {text} at {dims}")
    return dims


def _evaluate(node: ast.expr, dims: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in dims:
        return dims[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_evaluate(node.left, dims), _evaluate(node.right, dims))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, dims)
    raise ValueError(f"not an integer expression over {', '.join(dims)}: {ast.unparse(node)}")


def _tree(size: Any) -> Any:
    """Returns the sympy tree of a SymInt. Raises InexpressibleError for anything else."""
    try:
        return size.node.expr
    except AttributeError as error:
        raise InexpressibleError(f"{size!r} is not an integer size") from error


def _grouped(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _positive(tree: Any) -> int:
    if not tree.is_Integer or int(tree) <= 0:
        raise InexpressibleError(f"the divisor {tree} is not a positive integer")
    return int(tree)


def _negative(tree: Any) -> bool:
    return bool(tree.as_coeff_Mul()[0] < 0)
