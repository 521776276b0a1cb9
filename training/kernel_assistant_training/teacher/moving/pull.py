"""Follows an element of a value backwards to what is read. Views and layout become positions, elementwise operators
become terms.

Elementwise operators are defined once, in the generator (`lower_pointwise`). Numbers have their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Axes, Const, Expr, Op, TensorExpr
from kernel_assistant.generator.ir.sizes import Size, mul, parse_size
from kernel_assistant.generator.lower.context import Context
from kernel_assistant.generator.lower.movement.views import dimension
from kernel_assistant.generator.lower.pointwise import BINARY, COMPARE, PARAMETRIC, SPECIAL, UNARY, lower_pointwise
from kernel_assistant.records.graph import Node, Operand, TensorSpec
from kernel_assistant_training.teacher.text.named import Named
from kernel_assistant_training.teacher.text.terms import ZERO, Apply, IndexTerm, Load, Name, Term, flat

At = tuple[IndexTerm, ...]
#: The element of a node at a position, for an operator that moves elements.
Rule = Callable[["Puller", Node, At], Term]
#: Most parts of an expression; longer ones are not what a person would write.
LONGEST = 48
ELEMENTWISE = frozenset((*UNARY, *PARAMETRIC, *COMPARE, *SPECIAL, *BINARY))


@dataclass(eq=False, slots=True)
class Leaf(Expr):
    """An operand of an elementwise operator, as the term that was made of it before."""

    term: Term


class Puller:
    """Makes terms of values. `rules` are those of operators that move elements. `holes` are values that are not
    followed further: their terms, at the position `home` only."""

    def __init__(
        self, rules: Mapping[str, Rule], named: Named, holes: dict[str, Term] | None = None, home: At = ()
    ) -> None:
        self.named, self.graph, self._rules = named, named.graph, rules
        self.nodes = {node.name: node for node in self.graph.nodes}
        self.inputs = {value.name: value.spec for value in self.graph.inputs}
        self.holes, self.home = holes or {}, home
        self._known: dict[tuple[str, At], Term] = {}
        self._left = LONGEST

    def spec(self, name: str) -> TensorSpec:
        return self.inputs[name] if name in self.inputs else self.nodes[name].spec

    def shape(self, name: str) -> list[Size]:
        return [parse_size(size) for size in self.spec(name).shape]

    def value(self, name: str, at: At) -> Term:
        """The element of a value at a position as a term. Raises Unsupported if an operator is neither elementwise nor
        in `rules`."""
        key = (name, at)
        if key not in self._known:
            self._left -= 1
            if self._left < 0:
                raise Unsupported("an expression too long to write by hand")
            found = self._value(name, at)
            if isinstance(found, Apply) and not found.node:
                found = replace(found, node=name)
            self._known[key] = found
        return self._known[key]

    def _value(self, name: str, at: At) -> Term:
        if name in self.holes:
            if [place.text for place in at] != [place.text for place in self.home]:
                raise Unsupported(f"{name} read at another place")
            return self.holes[name]
        if name in self.inputs:
            return self.load(name, at, self.shape(name))
        node = self.nodes[name]
        rule = self._rules.get(node.op.partition(".")[0])
        return rule(self, node, at) if rule is not None else self._elementwise(node, at)

    def load(self, name: str, at: At, shape: list[Size]) -> Load:
        """The element of an input at a position. A contiguous input may be read with another shape."""
        spec = self.inputs[name]
        if spec.strides is not None:
            order = memory_order(shape, [parse_size(stride) for stride in spec.strides])
            at, shape = tuple(at[dim] for dim in order), [shape[dim] for dim in order]
        at = tuple(ZERO if size == 1 else place for place, size in zip(at, shape, strict=True))
        return Load(name, spec.dtype, COMPUTE[spec.dtype], at, tuple(map(self.named.size, shape)))

    def operand(self, operand: Operand, at: At, shape: list[Size]) -> Term:
        """The element of an operand that is broadcast to `shape`, at a position in that shape."""
        name = str(operand)[1:]
        own = self.shape(name)
        places = at[len(at) - len(own) :]
        wide = shape[len(shape) - len(own) :]
        return self.value(
            name,
            tuple(
                ZERO if size == 1 and full != 1 else place for place, size, full in zip(places, own, wide, strict=True)
            ),
        )

    def _elementwise(self, node: Node, at: At) -> Term:
        if node.op.partition(".")[0] not in ELEMENTWISE:
            raise Unsupported(f"operator {node.op}")
        context = Context(self.graph)
        context.node = node
        shape = [parse_size(size) for size in node.spec.shape]
        for place, operand in enumerate(node.args):
            if isinstance(operand, str) and operand.startswith("%"):
                spec = self.spec(operand[1:])
                if node.op.partition(".")[0] in ("prelu", "_prelu_kernel") and place == 1:
                    term = self.value(operand[1:], at[1:2] if len(at) > 1 and spec.shape != ("1",) else (ZERO,))
                else:
                    term = self.operand(operand, at, shape)
                dims: tuple[Axes, ...] = ((),) * len(spec.shape)
                context.values[operand[1:]] = TensorExpr(Leaf(term.ctype, term), dims, spec.dtype)
        found = lower_pointwise(context)
        if found is None:
            raise Unsupported(f"operator {node.op}")
        return self.term(found.expr)

    def term(self, expr: Expr) -> Term:
        """Converts an expression of the generator to a term. Its leaves have terms already."""
        if isinstance(expr, Leaf):
            return expr.term
        if isinstance(expr, Const):
            text = self.named.constant(expr)
            return Name(expr.ctype, text)
        assert isinstance(expr, Op)
        return Apply(expr.ctype, expr.text, tuple(map(self.term, expr.args)))

    def index(self, operand: Operand, at: At, size: Size, write: Callable[[Load], str]) -> IndexTerm:
        """The position along a dimension of size `size` that an integer tensor gives."""
        term = self.value(str(operand)[1:], at)
        if not isinstance(term, Load) or term.ctype != "int64_t":
            raise Unsupported("positions that are computed")
        uses = frozenset().union(*(place.uses for place in term.at))
        return IndexTerm(f"ka::at({write(term)}, {self.named.size(size)})", uses=uses | {"index"})

    def dimension(self, node: Node, operand: Operand, rank: int) -> int:
        context = Context(self.graph)
        context.node = node
        return dimension(context, operand, rank)

    def source(self, load: Load) -> str:
        """The loaded element as it is in memory, without conversion."""
        return f"{self.named.prefix}{load.buffer}[{flat(load.at, load.sizes).text}]"


def memory_order(shape: list[Size], strides: list[Size]) -> list[int]:
    """The dimensions of a tensor without gaps, from the slowest to the fastest. Raises Unsupported for others."""
    left = [dim for dim, size in enumerate(shape) if size != 1]
    order: list[int] = []
    step: Size = 1
    while left:
        found = next((dim for dim in left if strides[dim] == step), None)
        if found is None:
            raise Unsupported("a tensor with gaps")
        left.remove(found)
        order.append(found)
        step = mul(step, shape[found])
    return [dim for dim, size in enumerate(shape) if size == 1] + order[::-1]
