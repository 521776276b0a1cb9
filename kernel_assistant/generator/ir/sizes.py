"""Computes with sizes: integers, or integer polynomials over the free dimensions, which only a call determines.
Divisions are exact."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import lru_cache

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.named import ROUNDED, NamedSize, read_named_size, rounded
from kernel_assistant.worker.runner.plan import evaluate

Terms = tuple[tuple[tuple[str, ...], int], ...]


class Poly:
    """A polynomial with integer coefficients. `terms` are sorted pairs (symbols, coefficient); a symbol that occurs
    twice is squared. Immutable, equal by value."""

    __slots__ = ("terms",)

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    def __repr__(self) -> str:
        return f"Poly({size_text(self)})"


Size = int | Poly


def _terms(size: Size) -> dict[tuple[str, ...], int]:
    if isinstance(size, int):
        return {(): size} if size else {}
    return dict(size.terms)


def _size(terms: dict[tuple[str, ...], int]) -> Size:
    kept = {key: value for key, value in terms.items() if value}
    if not kept:
        return 0
    if kept.keys() == {()}:
        return kept[()]
    return Poly(tuple(sorted(kept.items())))


def symbol(name: str) -> Size:
    return Poly((((name,), 1),))


def add(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    terms = _terms(a)
    for key, value in _terms(b).items():
        terms[key] = terms.get(key, 0) + value
    return _size(terms)


def mul(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if isinstance(a, Poly) and type(b) is int and b:
        # Most products: nothing is joined, nothing vanishes.
        return a if b == 1 else Poly(tuple((key, value * b) for key, value in a.terms))
    terms: dict[tuple[str, ...], int] = {}
    for left, x in _terms(a).items():
        for right, y in _terms(b).items():
            key = tuple(sorted(left + right))
            terms[key] = terms.get(key, 0) + x * y
    return _size(terms)


def product(sizes: list[Size] | tuple[Size, ...]) -> Size:
    total: Size = 1
    for size in sizes:
        total = mul(total, size)
    return total


def divide(a: Size, b: Size) -> Size | None:
    """Returns a / b if `b` is a single term that divides every term of `a`, or if both are equal; else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    if a == b:
        return 1
    divisor = list(_terms(b).items())
    if len(divisor) != 1:
        return None
    (symbols, factor) = divisor[0]
    terms = {}
    for key, value in _terms(a).items():
        rest = list(key)
        for name in symbols:
            if name not in rest:
                return None
            rest.remove(name)
        if value % factor:
            return None
        terms[tuple(rest)] = value // factor
    return _size(terms)


def multiple_of(size: Size, factor: int) -> bool:
    """Whether `size` is a multiple of `factor` for all values of the free dimensions (sizes that only a call
    determines)."""
    if isinstance(size, int):
        return size % factor == 0
    return all(value % factor == 0 for _, value in size.terms)


def size_text(size: Size, names: dict[str, str] | None = None) -> str:
    """Returns the size as the text of an expression. `names` maps symbols to the names that are written for them; None
    keeps the symbols."""
    return str(size) if isinstance(size, int) else _polynomial_text(size, str, names)


def _polynomial_text(size: Poly, number: Callable[[int], str], names: dict[str, str] | None = None) -> str:
    parts = []
    for symbols, value in size.terms:
        factors = [names[name] if names else name for name in symbols]
        if value != 1 or not factors:
            factors = [f"({number(value)})" if value < 0 else number(value), *factors]
        parts.append("*".join(factors))
    return parts[0] if len(parts) == 1 else "(" + " + ".join(parts) + ")"


def size_value(size: Size, dims: dict[str, int]) -> int:
    """Returns the size as an integer. `dims` maps each free dimension (a size that only a call determines) to its
    value."""
    if isinstance(size, int):
        return size
    total = 0
    for symbols, value in size.terms:
        for name in symbols:
            value *= dims[name] if name in dims else evaluate(name, dims)
        total += value
    return total


def shape_text(size: Size) -> str:
    """Returns the size as text for a tensor shape, in a form that `parse_size` reads. A constant that has a name is
    written with its value, such as `D0(768)*2`."""
    return repr(size) if isinstance(size, int) else _polynomial_text(size, repr)


def size_operands(shape: Sequence[str]) -> list[int | str | float | None]:
    """Returns the sizes of a shape as operands of a node: sizes that are known as integers, all others as text."""
    return [size if isinstance(size := parse_size(text), int) else text for text in shape]


def symbols_of(size: Size) -> list[str]:
    return [] if isinstance(size, int) else sorted({name for key, _ in size.terms for name in key})


def fixed(text: str) -> int | None:
    """Parses a size. Returns it as an integer, which is a NamedSize if the size has a name; None if it depends on free
    dimensions (sizes that only a call determines)."""
    size = parse_size(text)
    return size if isinstance(size, int) else None


def known_size(size: Size) -> int:
    """Returns `size` as an integer; asserts that it does not depend on free dimensions."""
    assert isinstance(size, int)
    return size


def size_of(operand: object) -> Size:
    """Converts an operand of a node to a size: returns an integer unchanged, and parses any other operand as an
    expression."""
    return operand if isinstance(operand, int) else parse_size(str(operand))


@lru_cache(maxsize=4096)
def parse_size(text: str) -> Size:
    """Parses an expression to a size. Calls and divisions whose value is not known become symbols. Raises Unsupported
    if the text is no expression.
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return _walk(ast.parse(text, mode="eval").body)
    except SyntaxError as error:
        raise Unsupported(f"size {text!r} is not an expression") from error


def _walk(node: ast.expr) -> Size:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.Call) and (named := read_named_size(ast.unparse(node))) is not None:
        return named
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == ROUNDED:
        inner = _walk(node.args[0])
        return rounded(inner) if isinstance(inner, int) else inner
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return mul(-1, _walk(node.operand))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        left, right = _walk(node.left), _walk(node.right)
        if isinstance(left, int) and isinstance(right, int) and NamedSize in (type(left), type(right)):
            return left // right
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
        left, right = _walk(node.left), _walk(node.right)
        if isinstance(node.op, ast.Mult):
            return mul(left, right)
        if isinstance(node.op, ast.Sub) and isinstance(left, int) and isinstance(right, int):
            return left - right
        return add(left, right if isinstance(node.op, ast.Add) else mul(-1, right))
    return symbol("(" + ast.unparse(node) + ")")
