"""Writes the value of an elementwise operator: C text over operands that share loops, computed in PyTorch's dtype."""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import COMPUTE, Op, TensorExpr
from kernel_assistant.generator.lower.context import Context, broadcast
from kernel_assistant.generator.lower.numbers import converted, in_width, of_type
from kernel_assistant.generator.lower.shared_loops import sharing_loops


def pointwise(context: Context, text: str, values: list[TensorExpr], dtype: str = "", result: str = "") -> TensorExpr:
    """Returns the tensor that the C text `text` computes elementwise from broadcast operands ({0}, {1}, …), each
    converted to `dtype` (default: the node's). `result` is the dtype of the tensor if it differs from `dtype`.
    """
    dtype = dtype or context.node.spec.dtype
    values = sharing_loops(context, values)
    args = tuple(converted(value, dtype) for value in values)
    expr = Op(COMPUTE[result or dtype], in_width(text, dtype, args, result), args)
    return context.result(expr, broadcast(*(value.dims for value in values)))


def operands(context: Context, dtype: str = "") -> list[TensorExpr]:
    """Returns the values of the node's first two operands; numbers get the C type of `dtype` (default: the node's)."""
    ctype = COMPUTE[dtype or context.node.spec.dtype]
    return [context.operand(operand, ctype) for operand in context.node.args[:2]]


def beside(values: list[TensorExpr]) -> list[TensorExpr]:
    """Returns the two operands `values`. If one is a tensor of a half type and the other a number, the number is
    converted to the tensor's dtype."""
    left, right = values
    return [of_type(left, right.dtype), of_type(right, left.dtype)]
