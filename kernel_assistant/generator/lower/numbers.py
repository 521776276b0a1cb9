"""Converts values to a dtype as PyTorch does.

Integers are held as `int64_t` between operators, but each operator computes in the width of its dtype, and each value
is in its dtype's range: `narrowed` and `in_width` ensure that. A number beside a tensor of integers is first converted
to the tensor's dtype, so that 300 beside uint8 is 44.

A Python number beside a tensor of a half type is converted to the tensor's dtype before a comparison, and also in
`hardshrink`, `fmod` and `remainder`: `x > 0.1` is false for the bfloat16 nearest to 0.1, which is above 0.1. Divisions
that round keep the number in float32, as does `threshold` on the CPU. Found by experiment with PyTorch 2.13 on the CPU,
at values at which both conversions give different results (`tests/generator/test_deciding_numbers.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from kernel_assistant.generator.ir.expr import COMPUTE, Const, Expr, Op, TensorExpr
from kernel_assistant.generator.ir.named import NamedSize
from kernel_assistant.generator.ir.sizes import Poly
from kernel_assistant.generator.lower.context import cast
from kernel_assistant.records.canonical import PLAIN

HALVES = ("bf16", "f16")
#: The C type of each dtype of integers.
INTEGERS = {"u8": "uint8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t"}
#: Those that are narrower than the C type in which integers travel.
NARROW = {dtype: ctype for dtype, ctype in INTEGERS.items() if dtype != "i64"}
#: For each narrow dtype those whose every value it has.
_WITHIN = {"u8": ("b1",), "i8": ("b1",), "i16": ("b1", "u8", "i8"), "i32": ("b1", "u8", "i8", "i16")}
#: Dtypes of integers that a half type does not all have.
_INEXACT = ("i16", "i32", "i64")
#: Integers up to here are numbers of every type.
_EXACT = 256


def of_type(number: TensorExpr, dtype: str) -> TensorExpr:
    """Returns `number` converted to `dtype`, if `dtype` is a half type and `number` a literal that it may round.

    Whether the half type really rounds this number is not checked, so that the text has the same form for all numbers.
    """
    expr = number.expr
    if dtype not in HALVES or not isinstance(expr, Const) or isinstance(expr.value, bool):
        return number
    exact = abs(expr.value) <= _EXACT if isinstance(expr.value, int) else expr.value in PLAIN
    if exact or not isinstance(expr.value, int | float):
        return number
    return TensorExpr(Op("float", f"ka_round_{dtype}({{0}})", (Const("float", expr.value),)), number.dims, dtype)


def converted(value: TensorExpr, dtype: str) -> Expr:
    """Converts the operand `value` of an operator to `dtype`, the dtype in which the operator computes, as PyTorch
    does."""
    expr = value.expr
    if isinstance(expr, Const) and not isinstance(expr.value, Poly):
        return Const(COMPUTE[dtype], _wrapped(expr.value, dtype))
    if COMPUTE[dtype] in ("float", "double"):
        number = real(value, COMPUTE[dtype])
        rounds = dtype in HALVES and value.dtype in _INEXACT
        return Op("float", f"ka_round_{dtype}({{0}})", (number,)) if rounds else number
    if dtype in NARROW and expr.ctype in ("float", "double"):
        # By way of int32_t, as x86 does it: there are vectors for that. What it does not have is undefined in PyTorch.
        short = "(int32_t)" if dtype == "i32" else f"({NARROW[dtype]})(int32_t)"
        return Op("int64_t", f"(int64_t){short}{{0}}", (expr,))
    return narrowed(cast(expr, COMPUTE[dtype]), value.dtype, dtype)


def real(value: TensorExpr, ctype: str) -> Expr:
    """Returns `value` as a real number of the C type `ctype`. A narrow integer is first cast to its own width, because
    not every processor has vector instructions that convert 64-bit integers.
    """
    if value.dtype in NARROW and value.expr.ctype == "int64_t" and not isinstance(value.expr, Const):
        return Op(ctype, f"({ctype})({NARROW[value.dtype]}){{0}}", (value.expr,))
    return cast(value.expr, ctype)


def narrowed(expr: Expr, source: str, dtype: str) -> Expr:
    """Wraps `expr`, an integer of the dtype `source`, to the range of `dtype`. Returns `expr` itself if `dtype` has all
    values of `source`, or is no integer dtype narrower than int64."""
    if dtype not in NARROW or source == dtype or source in _WITHIN[dtype]:
        return expr
    return Op("int64_t", f"(int64_t)({NARROW[dtype]}){{0}}", (expr,))


def in_width(text: str, dtype: str, args: Sequence[Expr], result: str = "") -> str:
    """Returns the C text `text` of an operator with casts, so that arguments and result have the width of the integer
    `dtype`; unchanged for other dtypes.

    `args` are the expressions that later replace {0}, {1}, … in the text; a cast is put before those that need one.
    Functions of the headers return the type of their arguments. All other C text computes at least in `int`, so for
    dtypes narrower than that its result is cast, too, unless `result` names the dtype of the result.
    """
    if dtype not in INTEGERS:
        return text
    ctype, narrow, function = INTEGERS[dtype], dtype in NARROW, text.startswith("ka_")
    # A literal beside an int64_t would be an int, which is a type of its own to the headers' functions.
    cast = {str(index) for index, arg in enumerate(args) if narrow or (function and isinstance(arg, Const))}
    text = re.sub(r"\{(\d)\}", lambda match: f"({ctype})" * (match[1] in cast) + match[0], text)
    return f"({ctype})({text})" if narrow and not result and not function else text


def _wrapped(number: float, dtype: str) -> float:
    """Returns a literal as a number of `dtype`. A number outside the range of an integer dtype wraps around."""
    if dtype not in INTEGERS or not math.isfinite(number):
        return number
    bits = int(dtype[1:])
    low = 0 if dtype == "u8" else -(1 << (bits - 1))
    wrapped = (int(number) - low) % (1 << bits) + low
    return number if isinstance(number, NamedSize) and wrapped == number else wrapped
