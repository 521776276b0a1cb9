"""Defines positions along a dimension and conditions on them, and copies expressions with some parts replaced."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kernel_assistant.generator.ir.expr import (
    Axes,
    Const,
    Expr,
    Index,
    Load,
    Op,
    PrefixScan,
    Reduce,
    Window,
)
from kernel_assistant.generator.ir.sizes import Size, mul


@dataclass(frozen=True, slots=True)
class Position:
    """A position along a dimension: offset + Σ coefficient·axis, or the value of `term`. It exists only if `guard` is
    true."""

    index: Index = field(default_factory=dict)
    offset: Size = 0
    term: Expr | None = None
    guard: Expr | None = None

    def expr(self) -> Expr:
        """Returns the position as an integer expression."""
        return self.term if self.term is not None else iota(self.index, self.offset)


#: Whether a position is at least 0 and below a size. `print/cuda/transpose.py` recognises this text.
BELOW = "((uint64_t){0} < (uint64_t){1})"


def iota(index: Index, offset: Size = 0) -> Expr:
    """Returns the position offset + Σ coefficient·axis as an integer expression."""
    return Load("int64_t", "", "i64", index, offset)


def whole(value: Size) -> Expr:
    return Const("int64_t", value)


def integer(text: str, *args: Expr) -> Expr:
    return Op("int64_t", text, args)


def condition(text: str, *args: Expr) -> Expr:
    return Op("bool", text, args)


def within(position: Expr, size: Size) -> Expr:
    """Returns the condition 0 ≤ position < size, as one comparison."""
    return condition(BELOW, position, whole(size))


def both(left: Expr | None, right: Expr | None) -> Expr | None:
    """Returns the conjunction of two conditions; None stands for a condition that is always true."""
    if left is None or right is None:
        return left or right
    return condition("({0} && {1})", left, right)


def select(test: Expr, then: Expr, other: Expr) -> Expr:
    return Op(then.ctype, "({0} ? {1} : {2})", (test, then, other))


def axes_index(axes: Axes) -> Index:
    """Returns the index of a position along a dimension: a coefficient for each of the dimension's axes."""
    index: Index = {}
    step: Size = 1
    for axis in reversed(axes):
        index[axis] = step
        step = mul(step, axis.size)
    return index


class Rewriter:
    """Copies an expression with some parts replaced; unchanged parts stay the same objects."""

    def __init__(self) -> None:
        self.done: dict[int, Expr] = {}
        self.alive: list[Expr] = []

    def walk(self, expr: Expr) -> Expr:
        if id(expr) not in self.done:
            self.done[id(expr)] = self.rebuild(expr)
            self.alive.append(expr)
        return self.done[id(expr)]

    def rebuild(self, expr: Expr) -> Expr:
        if isinstance(expr, Load):
            return self.load(expr)
        if isinstance(expr, Op):
            args = tuple(self.walk(child) for child in expr.args)
            same = all(new is old for new, old in zip(args, expr.args, strict=True))
            return expr if same else self.operator(replace(expr, args=args))
        if isinstance(expr, Reduce):
            return self.reduce(expr)
        if isinstance(expr, PrefixScan):
            return self.scan(expr)
        return self.window(expr) if isinstance(expr, Window) else expr

    def operator(self, op: Op) -> Expr:
        return op

    def load(self, load: Load) -> Expr:
        terms = tuple((step, self.walk(term)) for step, term in load.terms)
        guard = None if load.guard is None else self.walk(load.guard)
        same = guard is load.guard and all(a[1] is b[1] for a, b in zip(terms, load.terms, strict=True))
        return load if same else replace(load, terms=terms, guard=guard)

    def reduce(self, reduce: Reduce) -> Expr:
        arg, joint = self.walk(reduce.arg), reduce.joint
        if arg is reduce.arg:
            return reduce
        if joint is not None:
            first = self.walk(joint[2])
            joint = (joint[0], self.walk(joint[1]), first) if isinstance(first, Reduce) else None
        return replace(reduce, arg=arg, joint=joint)

    def scan(self, scan: PrefixScan) -> Expr:
        return replace(scan, arg=self.walk(scan.arg))

    def window(self, window: Window) -> Expr:
        return replace(window, arg=self.walk(window.arg))
