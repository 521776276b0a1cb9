"""Lowers EmbeddingBag over bags of equal length, as for a matrix of indices: each result is a reduction over the
table's rows whose indices are in the bag. If the lengths depend on the values in `offsets`, the operator is left to
PyTorch.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Axes, Const, Expr, Op, Reduce, TensorExpr
from kernel_assistant.generator.ir.sizes import Size, add, parse_size, size_of
from kernel_assistant.generator.lower.context import Context, cast, dim_size, regroup, unify
from kernel_assistant.generator.lower.movement.gathers import Lowering, at_index, index_value
from kernel_assistant.generator.lower.positions import condition, select, whole
from kernel_assistant.records import Node
from kernel_assistant.records.graph import Operand

#: `mode` of the operator.
SUM, MEAN, MAX = range(3)


def _embedding_bag(context: Context) -> tuple[TensorExpr, ...]:
    """Lowers EmbeddingBag with the arguments (weight, indices, offsets, scale_grad_by_freq, mode, sparse,
    per_sample_weights, include_last_offset, padding_idx). Returns only the first of its results.
    """
    node, length = context.node, _length(context)
    table, index = context.value(node.args[0]), index_value(context, node.args[1])
    shape = (parse_size(node.spec.shape[0]), length)
    bags, members = regroup(index.dims, shape)
    ctype = COMPUTE[table.dtype]
    rows = cast(at_index(table, 0, index.expr), ctype)
    weights = context.argument(6, "per_sample_weights")
    if weights is not None:
        given = context.value(weights)
        _unify(regroup(given.dims, shape), (bags, members))
        rows = Op(ctype, "{0} * {1}", (rows, cast(given.expr, ctype)))
    context.result(rows, (bags, members, *table.dims[1:]))  # a shape that has all loops
    padding = _padding(context, table)
    counts = None if padding is None else condition("({0} != {1})", index.expr, padding)
    pooled = _pooled(context.argument(4, "mode", SUM), rows, members, counts, length)
    return (context.result(pooled, (bags, *table.dims[1:]), table.dtype),)


def _pooled(mode: object, rows: Expr, members: Axes, counts: Expr | None, length: Size) -> Expr:
    """Reduces the rows of each bag to one row. Rows for which `counts` is false are left out; a bag without rows gives
    zeros.
    """
    ctype, zero = rows.ctype, Const(rows.ctype, 0)
    if counts is None:
        kind = "max" if mode == MAX else "sum"
        reduced: Expr = Reduce(ctype, kind, rows, members) if members else rows
        return Op(ctype, "{0} / {1}", (reduced, Const(ctype, length))) if mode == MEAN else reduced
    neutral = Const(ctype, float("-inf")) if mode == MAX else zero
    rows = select(counts, rows, neutral)
    number: Expr = Op(ctype, f"({{0}} ? ({ctype})1 : ({ctype})0)", (counts,))
    if members:
        rows = Reduce(ctype, "max" if mode == MAX else "sum", rows, members)
        number = Reduce(ctype, "sum", number, members)
    if mode == SUM:
        return rows
    value = rows if mode == MAX else Op(ctype, "{0} / {1}", (rows, number))
    return select(condition("({0} > 0)", number), value, zero)


def _length(context: Context) -> Size:
    """Returns the number of rows in each bag. Raises Unsupported unless the offsets are computed as 0, n, 2n, …."""
    operand = str(context.node.args[2])
    made = next((node for node in context.graph.nodes if f"%{node.name}" == operand), None)
    step = None if made is None else _step(made)
    if step is None or context.argument(7, "include_last_offset", False):
        raise Unsupported(f"operator {context.node.op}: bags of lengths that only the call knows")
    return size_of(step)


def _step(node: Node) -> Operand:
    """Returns the n of a node that computes the offsets 0, n, 2n, … with `arange`; None for any other node."""
    if not node.op.startswith("arange.start") or node.args[0] != 0:
        return None
    return node.args[2] if len(node.args) > 2 else 1


def _padding(context: Context, table: TensorExpr) -> Expr | None:
    """Returns `padding_idx`, the index that marks rows to be left out; None if there is none."""
    given, rows = context.argument(8, "padding_idx"), dim_size(table.dims[0])
    if not isinstance(given, int) or (given < 0 and context.node.op.startswith("_")):
        return None
    return whole(given if given >= 0 else add(rows, given))


def _unify(mine: tuple[Axes, ...], theirs: tuple[Axes, ...]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        if one and other:
            unify(one, other)


BAGS: dict[str, Lowering] = {"embedding_bag": _embedding_bag, "_embedding_bag": _embedding_bag}
