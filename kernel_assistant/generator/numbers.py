"""Numbers that stand beside a tensor of a half type.

PyTorch makes a Python number one of the tensor's type before it compares with it, and so do `hardshrink`, `fmod` and
`remainder`: `x > 0.1` is false for the bfloat16 nearest to 0.1, which lies above it. Divisions that round keep the
number in float, and `threshold` does on the CPU. Found by experiment with PyTorch 2.13 on the CPU, at the values that
tell the two apart (`tests/generator/test_deciding_numbers.py`).
"""

from __future__ import annotations

from kernel_assistant.generator.expr import Const, Op, Value
from kernel_assistant.records.canonical import PLAIN

HALVES = ("bf16", "f16")
#: Integers up to here are numbers of every type.
_EXACT = 256


def of_type(number: Value, dtype: str) -> Value:
    """`number` as one of `dtype`, where it is a literal and that makes a difference for some literal in its place.

    Whether it does for this one is not asked: the text stays the same whatever number it is written for.
    """
    expr = number.expr
    if dtype not in HALVES or not isinstance(expr, Const) or isinstance(expr.value, bool):
        return number
    exact = abs(expr.value) <= _EXACT if isinstance(expr.value, int) else expr.value in PLAIN
    if exact or not isinstance(expr.value, int | float):
        return number
    return Value(Op("float", f"ka_round_{dtype}({{0}})", (Const("float", expr.value),)), number.dims, dtype)
