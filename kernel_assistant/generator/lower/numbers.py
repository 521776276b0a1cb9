"""Python numbers in operators on a tensor of a half type.

PyTorch converts such a number to the tensor's dtype before a comparison, and also in `hardshrink`, `fmod` and
`remainder`: `x > 0.1` is false for the bfloat16 nearest to 0.1, which lies above it. Divisions that round keep the
number in float, and `threshold` does on the CPU. Found by experiment with PyTorch 2.13 on the CPU, at the values that
tell the two apart (`tests/generator/test_deciding_numbers.py`).
"""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Const, Op, TensorExpr
from kernel_assistant.records.canonical import PLAIN

HALVES = ("bf16", "f16")
#: Integers up to here are numbers of every type.
_EXACT = 256


def of_type(number: TensorExpr, dtype: str) -> TensorExpr:
    """`number` converted to `dtype`, if it is a literal that a half type may round.

    Whether it really rounds this number is not checked, so that the text has the same form for all numbers.
    """
    expr = number.expr
    if dtype not in HALVES or not isinstance(expr, Const) or isinstance(expr.value, bool):
        return number
    exact = abs(expr.value) <= _EXACT if isinstance(expr.value, int) else expr.value in PLAIN
    if exact or not isinstance(expr.value, int | float):
        return number
    return TensorExpr(Op("float", f"ka_round_{dtype}({{0}})", (Const("float", expr.value),)), number.dims, dtype)
