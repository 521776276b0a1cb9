"""Reading an expression somewhere else along one of its axes: at affine positions, at computed ones, or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.expr import (
    Axes,
    Axis,
    Const,
    Expr,
    Index,
    Load,
    Op,
    Reduce,
    Scan,
    Window,
    resolve,
    resolve_index,
)
from kernel_assistant.generator.sizes import Size, add, mul, product

#: Integer operators that must not see the zeros that loads behind a false guard give.
DIVIDES = ("/", "%", "ka_fmod", "ka_remainder", "ka_floor_divide")


@dataclass(frozen=True, slots=True)
class Place:
    """A position: offset + Σ coefficient·axis, or the value of `term`; where `guard` is false there is none."""

    index: Index = field(default_factory=dict)
    offset: Size = 0
    term: Expr | None = None
    guard: Expr | None = None

    def expr(self) -> Expr:
        """The position as an integer expression."""
        return self.term if self.term is not None else iota(self.index, self.offset)


def iota(index: Index, offset: Size = 0) -> Expr:
    """offset + Σ coefficient·axis as a value."""
    return Load("int64_t", "", "i64", index, offset)


def whole(value: Size) -> Expr:
    return Const("int64_t", value)


def integer(text: str, *args: Expr) -> Expr:
    return Op("int64_t", text, args)


def condition(text: str, *args: Expr) -> Expr:
    return Op("bool", text, args)


def within(position: Expr, size: Size) -> Expr:
    """0 ≤ position < size, in one comparison."""
    return condition("((uint64_t){0} < (uint64_t){1})", position, whole(size))


def both(left: Expr | None, right: Expr | None) -> Expr | None:
    """Whether two conditions hold; none always does."""
    if left is None or right is None:
        return left or right
    return condition("({0} && {1})", left, right)


def select(test: Expr, then: Expr, other: Expr) -> Expr:
    return Op(then.ctype, "({0} ? {1} : {2})", (test, then, other))


def axes_index(axes: Axes) -> Index:
    """The position along a dimension in terms of its axes."""
    index: Index = {}
    step: Size = 1
    for axis in reversed(axes):
        index[axis] = step
        step = mul(step, axis.size)
    return index


def move(expr: Expr, axes: Axes, place: Place) -> Expr:
    """`expr` read at `place` along the dimension that `axes` make up."""
    parts = resolve(axes)
    if len(parts) == 1:
        return _Move(parts[0], place).walk(expr)
    position = place.expr()
    for number, part in enumerate(parts):
        below = product([axis.size for axis in parts[number + 1 :]])
        digit = position if below == 1 else integer("({0} / {1})", position, whole(below))
        digit = integer("({0} % {1})", digit, whole(part.size)) if number else digit
        expr = _Move(part, Place(term=digit, guard=place.guard)).walk(expr)
    return expr


def behind(expr: Expr, guard: Expr) -> Expr:
    """`expr` where the condition holds; elsewhere it reads nothing and its value means nothing."""
    return _Behind(guard).walk(expr)


class Rewriter:
    """A copy of an expression with some parts replaced; what does not change stays the same object."""

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
        if isinstance(expr, Scan):
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

    def scan(self, scan: Scan) -> Expr:
        return replace(scan, arg=self.walk(scan.arg))

    def window(self, window: Window) -> Expr:
        return replace(window, arg=self.walk(window.arg))


class _Guarded(Rewriter):
    """What must hold where loads stand behind a condition."""

    guard: Expr | None

    def operator(self, op: Op) -> Expr:
        divides = op.ctype == "int64_t" and any(sign in op.text for sign in DIVIDES)
        if self.guard is not None and divides and not isinstance(op.args[-1], Const):
            raise Unsupported("an integer division of a padded or joined value")
        return op


class _Behind(_Guarded):
    def __init__(self, guard: Expr) -> None:
        super().__init__()
        self.guard = guard

    def load(self, load: Load) -> Expr:
        return replace(load, guard=both(load.guard, self.guard)) if load.buffer else load

    def reduce(self, reduce: Reduce) -> Expr:
        return reduce

    def scan(self, scan: Scan) -> Expr:
        return scan

    def window(self, window: Window) -> Expr:
        return window


class _Move(_Guarded):
    def __init__(self, axis: Axis, place: Place) -> None:
        super().__init__()
        self.axis, self.place, self.guard = axis, place, place.guard

    def load(self, load: Load) -> Expr:
        found = super().load(load)
        assert isinstance(found, Load)
        index = resolve_index(found.index)
        coefficient = index.pop(self.axis, 0)
        if coefficient == 0:
            return found
        place = self.place
        guard = both(found.guard, place.guard) if load.buffer else None
        if place.term is None:
            for axis, step in place.index.items():
                index[axis] = add(index.get(axis, 0), mul(coefficient, step))
            offset = add(found.offset, mul(coefficient, place.offset))
            return replace(found, index=index, offset=offset, guard=guard)
        if load.buffer:
            return replace(found, index=index, terms=(*found.terms, (coefficient, place.term)), guard=guard)
        moved = place.term if coefficient == 1 else integer("{0} * {1}", place.term, whole(coefficient))
        if not index and found.offset == 0:
            return moved
        return integer("({0} + {1})", replace(found, index=index), moved)

    def reduce(self, reduce: Reduce) -> Expr:
        return reduce if self.axis in resolve(reduce.axes) else super().reduce(reduce)

    def scan(self, scan: Scan) -> Expr:
        if resolve((scan.axis,)) == (self.axis,):
            raise Unsupported("a slice of a scan along its own dimension")
        return super().scan(scan)

    def window(self, window: Window) -> Expr:
        # Imported here: chains are made of moved expressions.
        from kernel_assistant.generator.windows import chain

        if any(self.axis in resolve((span.out,)) for span in window.spans):
            return self.walk(chain(window))
        return super().window(window)
