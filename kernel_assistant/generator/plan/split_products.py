"""Splits the operands of large float32 products, so that tensor cores compute them nearly as exactly as float32 does.

Each operand is split into a sum of two parts: its value with TF32's mantissa (10 bits), and the rest (13 bits, of which
TF32 keeps the first 11). Of the four products of parts, three are computed and added in float32; the fourth is below
float32's rounding (Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores", 2022). Tensor cores
truncate sums instead of rounding them, so they add pieces of 1,024 elements only (`operations/cublaslt.py`). For
numbers of both signs the largest error is that of cuBLAS in float32, for positive numbers it is less than a
hundred-thousandth of the sum; the time is 0.4 of cuBLAS's (H200, docs/experiments.md, 172). A product of two infinities
is NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.operators import FREE, HIGH, operator
from kernel_assistant.generator.ir.sizes import size_value
from kernel_assistant.generator.library.contraction import as_matmul
from kernel_assistant.generator.library.convolutions import CONVOLUTIONS
from kernel_assistant.generator.library.library import SPLIT, TF32
from kernel_assistant.generator.library.products import PRODUCTS, read_product
from kernel_assistant.generator.loops.strided import Resolver
from kernel_assistant.generator.plan.cost import elements
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import Operand, name_of

#: Floating-point operations a second of cuBLAS in float32 and in TF32, bytes a second, and seconds for a launch, on an
#: H200. Split products have to be this much faster by these figures.
IN_FLOAT32, IN_TF32, MEMORY, LAUNCH = 4.8e13, 3.3e14, 3.5e12, 3e-6
GAIN = 1.25
#: With fewer rows or columns a product takes the time of reading its operands, of which there would be more.
LEAST_ROWS = 64
#: Tensor cores' kernels read rows that begin at multiples of 16 bytes.
ALIGNED = 4
#: As in the runner.
PIECE = 1024


def with_split_products(graph: OpGraph, groups: Iterable[Collection[str]], stay: Collection[str]) -> OpGraph:
    """Returns the graph with split operands for those float32 products in `groups` that this makes faster. `groups` are
    the nodes that libraries compute; nodes in `stay` are not changed.
    """
    listed = {name for group in groups for name in group} - set(stay)
    values = Resolver(graph)
    nodes: list[Node] = []
    made: dict[str, tuple[str, str]] = {}
    for node in graph.nodes:
        operands = _operands(node) if node.name in listed and _is_worth(node, graph, values) else None
        if operands is None or any(_repeats(name, graph) for name in operands):
            nodes.append(node)
            continue
        names = {}
        for name in operands:
            if name not in made:
                made[name] = _parts(name, graph.spec(name), nodes)
            names[name] = made[name][0]
        lows = {f"{side}_low": f"%{made[name][1]}" for side, name in zip(("left", "right"), operands, strict=True)}
        nodes.append(_reading(node, names, lows))
    return replace(graph, nodes=tuple(nodes)) if made else graph


def in_tf32(graph: OpGraph, groups: Iterable[Collection[str]], stay: Collection[str]) -> OpGraph:
    """Returns the graph in which the float32 products and convolutions in `groups` are computed in TF32; nodes in
    `stay` are not changed.
    """
    listed = {name for group in groups for name in group} - set(stay)
    nodes = tuple(
        replace(node, op=f"{operator(node)}{TF32}")
        if node.name in listed and node.spec.dtype == "f32" and operator(node) in PRODUCTS.keys() | CONVOLUTIONS.keys()
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def has_tf32(graph: OpGraph) -> bool:
    """Whether a node of the graph is a product or convolution in TF32."""
    return any(node.op.endswith(TF32) for node in graph.nodes)


def has_split_products(graph: OpGraph) -> bool:
    """Whether a node of the graph is a product of split operands."""
    return any(node.op.endswith(SPLIT) for node in graph.nodes)


def _operands(node: Node) -> tuple[str, str] | None:
    """Returns the names of the two values that a product multiplies; None if there are not exactly two."""
    first = _first(node)
    operands = node.args[1] if operator(node) == "einsum" else node.args[first : first + 2]
    named = [name for name in map(name_of, operands if isinstance(operands, list | tuple) else ()) if name]
    return (named[0], named[1]) if len(named) == 2 else None


def _first(node: Node) -> int:
    """Returns the index of the product's first factor in the arguments: 1 for operators such as `addmm`, whose first
    argument is the addend, else 0.
    """
    return 1 if operator(node).startswith(("add", "badd")) else 0


def _is_worth(node: Node, graph: OpGraph, values: Resolver) -> bool:
    """Whether the product of split operands, including the work of splitting, is faster than the product in float32."""
    if operator(node) not in PRODUCTS or node.spec.dtype != "f32" or node.op.endswith(SPLIT):
        return False
    try:
        matmul = as_matmul(read_product(node, values).product)
    except Unsupported:
        return False
    m, n, k, batch = (size_value(size, graph.dims) for size in (matmul.m, matmul.n, matmul.k, matmul.batch))
    if min(m, n) < LEAST_ROWS or k % ALIGNED or n % ALIGNED:
        return False
    constant = {value.name for value in graph.inputs if value.kind != "input"}
    split = sum(elements(graph.spec(name), graph.dims) for name in _operands(node) or () if name not in constant)
    pieces = -(-k // PIECE)
    work, added = 2.0 * m * n * k * batch, m * n * batch * (pieces + 1)
    seconds = 3 * work / IN_TF32 + (12 * split + 8 * added) / MEMORY + (pieces + 4) * LAUNCH
    return GAIN * seconds < work / IN_FLOAT32


def _repeats(name: str, graph: OpGraph) -> bool:
    """Whether several elements of a value share one element in memory, as after `expand`. Its split parts would be
    larger than the value.
    """
    known = {node.name: node for node in graph.nodes}
    most = elements(graph.spec(name), graph.dims)
    while name in known and operator(known[name]) in FREE and known[name].args:
        name = str(known[name].args[0])[1:]
        if elements(graph.spec(name), graph.dims) < most:
            return True
    return False


def _parts(name: str, spec: TensorSpec, nodes: list[Node]) -> tuple[str, str]:
    """Appends to `nodes` the nodes that compute the high and the low part of a value; returns the names of both."""
    dense = TensorSpec(dtype=spec.dtype, shape=spec.shape)
    high, low = f"{name}_high", f"{name}_low"
    nodes.append(Node(name=high, op=HIGH, args=(f"%{name}",), spec=dense))
    nodes.append(Node(name=low, op="sub.Tensor", args=(f"%{name}", f"%{high}"), spec=dense))
    return high, low


def _reading(node: Node, names: dict[str, str], lows: dict[str, str]) -> Node:
    """Returns the node of the product with split operands: it has the high parts as operands, the low parts as keyword
    arguments."""

    def read(operand: Operand) -> Operand:
        return f"%{names[name]}" if (name := name_of(operand)) in names else operand

    args = list(node.args)
    if operator(node) == "einsum" and isinstance(args[1], list):
        args[1] = [read(one) for one in args[1]]  # type: ignore[misc]
    else:
        first = _first(node)
        args[first : first + 2] = [read(one) for one in args[first : first + 2]]
    return replace(node, op=f"{operator(node)}{SPLIT}", args=tuple(args), kwargs={**node.kwargs, **lows})
