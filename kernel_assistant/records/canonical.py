"""The canonical form of a graph: its numbers are replaced by names, so that a computation has the same text at all
sizes.

Literal sizes above 1 become D0, D1, … and floating-point literals C0, C1, …, in the order in which the text names them;
equal numbers share a name. Free dimensions keep their names (B, B2, …). Values that say *how* an operator works stay
unchanged: dimensions, flags, kernel sizes, strides and paddings up to 16, everything negative, the numbers 0, 1, 2, -1
and 0.5.

    x0 f32[B,D0]                          OpGraph.text():  dims B
    p0 [D0]                                                input x0 f32[B,768]
    n0 = pow(x0, 2)                                        param p0 f32[768]
    n1 = mean(n0, [-1], true) [B,1]                        %n0 = pow.Tensor_Scalar(%x0, 2) f32[B,768]
    n2 = add(n1, C0)                                       …
    n3 = rsqrt(n2)
    n4 = mul(x0, n3)
    n5 = mul(n4, p0)
    return n5                             sizes {"D0": 768}, constants {"C0": 1e-05}
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count

import msgspec

from kernel_assistant.records.codec import Record, content_hash
from kernel_assistant.records.graph import Node, Operand, OpGraph, TensorSpec, references

#: Integers of operands up to this are attributes, unless they are part of a shape.
MOST_ATTRIBUTE = 16
#: Integers from here on are no sizes.
NO_SIZE = 1 << 31
#: The end of an open slice; the text says `end`.
END = (1 << 63) - 1
#: Floating-point literals that belong to a formula rather than to a model.
PLAIN = frozenset({0.0, 1.0, 2.0, -1.0, 0.5})
#: Operators whose lists are shapes: every size in them has a name.
_SHAPED = frozenset(
    {
        "broadcast_to",
        "empty",
        "expand",
        "full",
        "layer_norm",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones",
        "reshape",
        "rms_norm",
        "unflatten",
        "view",
        "zeros",
    }
)
#: An operand that is no list, or one element of a list.
Item = int | str | float | None
_LETTERS = {"input": "x", "param": "p", "buffer": "b"}
_PRODUCT = re.compile(r"\w+(?:\*\w+)*$")


class Canonical(Record, frozen=True, kw_only=True):
    """A graph with names instead of numbers, made by `canonical`. `sizes` (D0 → 768) and `constants` (C0 → 1e-05) map
    each name to its number."""

    graph: OpGraph
    sizes: dict[str, int]
    constants: dict[str, float]

    def text(self) -> str:
        """Returns the graph as text for a model, one line for each value. A dtype is omitted if the first input has the
        same, a shape if the first operand has the same, and overload names always. Different computations have
        different texts."""
        graph = self.graph
        shapes = {value.name: value.spec.shape for value in graph.inputs}
        usual = graph.inputs[0].spec.dtype if graph.inputs else ""
        lines = []
        for index, value in enumerate(graph.inputs):
            spec = _spec_text(value.spec, "" if index == 0 else usual, None)
            lines.append(f"{value.name} {spec}")
        for node in graph.nodes:
            operands = [_operand_text(operand) for operand in node.args]
            operands += [f"{key}={_operand_text(node.kwargs[key])}" for key in sorted(node.kwargs)]
            first = next(iter(references(node)), "")
            spec = _spec_text(node.spec, usual, shapes.get(first))
            lines.append(f"{node.name} = {node.op.partition('.')[0]}({', '.join(operands)}) {spec}".rstrip())
            shapes[node.name] = node.spec.shape
        lines.append("return " + ", ".join(graph.outputs))
        return "\n".join(lines) + "\n"

    def key(self) -> str:
        """Returns the hash of the canonical text: graphs that differ only in sizes and constants have the same hash."""
        return content_hash(self.text())

    def concrete(self) -> OpGraph:
        """Returns the graph with sizes and constants in place of their names. Undoes `canonical`, but values keep their
        new names."""

        def size(text: str) -> str:
            return "*".join(str(self.sizes.get(factor, factor)) for factor in factors(text))

        def item(value: Item, shaped: bool) -> Item:
            if not isinstance(value, str):
                return value
            if value in self.constants:
                return self.constants[value]
            symbol = size(value)
            return int(symbol) if symbol.isdigit() else symbol

        return mapped(self.graph, size, item)


def canonical(graph: OpGraph) -> Canonical:
    """Returns the canonical form of `graph`. Values are renamed to x0, p0, b0, n0, …, unless all have such names
    already, as in graphs of the worker's exporter. In that case, kernel sources that use the names of `Canonical.graph`
    also fit `graph`."""
    graph = _renumbered(graph)
    sizes: dict[int, str] = {}
    constants: dict[float, str] = {}

    def named(size: int) -> str:
        if size not in sizes:
            taken = {*graph.dims, *sizes.values()}
            sizes[size] = next(name for number in count() if (name := f"D{number}") not in taken)
        return sizes[size]

    def size(text: str) -> str:
        """Replaces the numbers of a product: `768` → `D0`, `B*16` → `B*D1`. An expression that is no product is
        returned unchanged.
        """
        return "*".join(named(int(one)) if one.isdigit() and int(one) > 1 else one for one in factors(text))

    def item(value: Item, shaped: bool) -> Item:
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            return named(value) if (1 if shaped else MOST_ATTRIBUTE) < value < NO_SIZE else value
        if isinstance(value, float):
            return value if value in PLAIN else constants.setdefault(value, f"C{len(constants)}")
        # A string is a value's name, a dtype, a mode, or a size.
        if not all(one.isdigit() or one in graph.dims for one in value.split("*")):
            return value
        symbol = size(value)
        return int(symbol) if symbol.isdigit() else symbol

    return Canonical(
        graph=mapped(graph, size, item),
        sizes={name: number for number, name in sizes.items()},
        constants={name: number for number, name in constants.items()},
    )


def factors(text: str) -> list[str]:
    """Returns the factors of a product of names and numbers, such as `B*16`; any other text is returned as the only
    factor."""
    return text.split("*") if _PRODUCT.match(text) else [text]


def mapped(graph: OpGraph, size: Callable[[str], str], item: Callable[[Item, bool], Item]) -> OpGraph:
    """Returns the graph with each size replaced by `size(...)` and each operand by `item(...)`, called in the order of
    the graph's text. The second argument of `item` says whether the operand is part of a shape."""

    def spec(of: TensorSpec) -> TensorSpec:
        strides = None if of.strides is None else tuple(map(size, of.strides))
        return TensorSpec(dtype=of.dtype, shape=tuple(map(size, of.shape)), strides=strides)

    def operand(of: Operand, shaped: bool) -> Operand:
        return [item(one, shaped) for one in of] if isinstance(of, list) else item(of, False)

    def node(of: Node) -> Node:
        shaped = of.op.partition(".")[0] in _SHAPED
        args = tuple(operand(one, shaped) for one in of.args)
        kwargs = {key: operand(of.kwargs[key], shaped) for key in sorted(of.kwargs)}
        return Node(name=of.name, op=of.op, args=args, kwargs=kwargs, spec=spec(of.spec))

    inputs = tuple(msgspec.structs.replace(value, spec=spec(value.spec)) for value in graph.inputs)
    return OpGraph(dims=graph.dims, inputs=inputs, nodes=tuple(map(node, graph.nodes)), outputs=graph.outputs)


def _renumbered(graph: OpGraph) -> OpGraph:
    values = {value.name: _LETTERS[value.kind] for value in graph.inputs} | {node.name: "n" for node in graph.nodes}
    if all(name[:1] == letter and name[1:].isdigit() for name, letter in values.items()):
        return graph
    counted = dict.fromkeys("xpbn", 0)
    names = {}
    for name, letter in values.items():
        names[name] = f"{letter}{counted[letter]}"
        counted[letter] += 1
    return OpGraph(
        dims=graph.dims,
        inputs=tuple(msgspec.structs.replace(value, name=names[value.name]) for value in graph.inputs),
        nodes=tuple(_with_names(node, names) for node in graph.nodes),
        outputs=tuple(names[name] for name in graph.outputs),
    )


def _with_names(node: Node, names: dict[str, str]) -> Node:
    def renamed(operand: Operand) -> Operand:
        if isinstance(operand, list):
            return [item if not isinstance(item, str) else _reference(item, names) for item in operand]
        return _reference(operand, names) if isinstance(operand, str) else operand

    return Node(
        name=names[node.name],
        op=node.op,
        args=tuple(map(renamed, node.args)),
        kwargs={key: renamed(operand) for key, operand in node.kwargs.items()},
        spec=node.spec,
    )


def _reference(item: str, names: dict[str, str]) -> str:
    return f"%{names[item[1:]]}" if item.startswith("%") else item


def _spec_text(spec: TensorSpec, usual: str, known: tuple[str, ...] | None) -> str:
    """Returns the text of a tensor's dtype, shape and strides. It leaves out a dtype equal to `usual` and a shape equal
    to `known`, but never strides."""
    dtype = "" if spec.dtype == usual else spec.dtype
    shape = "" if spec.shape == known else f"[{','.join(spec.shape)}]"
    return dtype + shape + ("" if spec.strides is None else "/" + ",".join(spec.strides))


def _operand_text(operand: Operand) -> str:
    if isinstance(operand, list):
        return "[" + ",".join(map(_operand_text, operand)) + "]"
    if isinstance(operand, bool):
        return "true" if operand else "false"
    if operand is None or operand == END:
        return "none" if operand is None else "end"
    return operand.removeprefix("%") if isinstance(operand, str) else repr(operand)
