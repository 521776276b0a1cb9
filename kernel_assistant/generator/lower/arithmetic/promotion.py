"""Finds the dtype in which PyTorch computes an operator on tensors and numbers of several dtypes.

Source: `torch.result_type` (ATen/native/TypeProperties.cpp, c10/core/ScalarType.h). The dtypes of tensors with
dimensions are decisive. A tensor without dimensions counts only if its category (truth value, integer, real number) is
higher; a Python number only if its category is higher than that of all tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from kernel_assistant.generator.ir.expr import TensorExpr
from kernel_assistant.generator.ir.literals import decoded
from kernel_assistant.generator.lower.context import Context
from kernel_assistant.generator.lower.numbers import INTEGERS
from kernel_assistant.records.graph import Operand

#: Rank of real numbers; two of one rank, the half types, meet in the next.
_REAL = {"f16": 0, "bf16": 0, "f32": 1, "f64": 2}
_SIGNED = ("i8", "i16", "i32", "i64")


def common_dtype(context: Context, operands: Iterable[Operand]) -> str:
    """Returns the dtype to which PyTorch promotes these operands of the node."""
    dtypes: list[list[str]] = [[], [], []]
    for operand in operands:
        if isinstance(operand, str) and operand.startswith("%"):
            value: TensorExpr = context.value(operand)
            dtypes[0 if value.dims else 1].append(value.dtype)
        else:
            dtypes[2].append(_of_number(decoded(operand, context.node.op)))
    kinds = [reduce(promoted, kind) for kind in dtypes if kind]
    return reduce(_unless_lower, kinds)


def _of_number(number: Operand) -> str:
    """Returns PyTorch's dtype of a Python number. A size is an integer, even if it is given as text."""
    return "b1" if isinstance(number, bool) else "f32" if isinstance(number, float) else "i64"


def _category(dtype: str) -> int:
    return 2 if dtype in _REAL else 1 if dtype in INTEGERS else 0


def _unless_lower(first: str, other: str) -> str:
    """Returns `first`, or the dtype to which both are promoted if `other` has a higher category (truth value, integer,
    real number). So a float16 tensor beside a float number stays float16.
    """
    return promoted(first, other) if _category(other) > _category(first) else first


def promoted(left: str, right: str) -> str:
    """Returns the dtype of an operation on tensors of dtypes `left` and `right`. A real dtype wins over every integer
    one, although it may not hold every integer."""
    if left == right:
        return left
    low, high = sorted((left, right), key=_category)
    if _category(low) != _category(high):
        return high
    if high in _REAL:
        same = _REAL[left] == _REAL[right]
        return "f32" if same else max(left, right, key=_REAL.__getitem__)
    if "u8" in (left, right):
        return "i16" if "i8" in (left, right) else left if right == "u8" else right
    return max(left, right, key=_SIGNED.index)
