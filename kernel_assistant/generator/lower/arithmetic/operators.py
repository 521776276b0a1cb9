"""Arithmetic operators. Integers have C text of their own: they wrap around, and a division by zero must not trap."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.expr import COMPUTE, TensorExpr
from kernel_assistant.generator.lower.arithmetic.elementwise import beside, operands, pointwise
from kernel_assistant.generator.lower.context import Context
from kernel_assistant.generator.lower.numbers import INTEGERS

#: Text for real numbers and for integers.
UNARY = {"neg": ("-{0}", "ka_neg({0})"), "square": ("{0} * {0}", "ka_mul({0}, {0})")}
BINARY = {
    "mul": ("{0} * {1}", "ka_mul({0}, {1})"),
    "floor_divide": ("ka_floor_divide({0}, {1})",) * 2,
    "pow": ("ka_pow({0}, {1})",) * 2,
}
#: Sums: (text for real numbers, text for integers, the operand that alpha scales).
SUMS = {
    "add": ("{0} + {1}", "ka_add({0}, {1})", "{1}"),
    "sub": ("{0} - {1}", "ka_sub({0}, {1})", "{1}"),
    "rsub": ("{1} - {0}", "ka_sub({1}, {0})", "{0}"),
}
BOOLEAN = {"and": "({0} & {1})", "or": "({0} | {1})", "xor": "({0} ^ {1})"}
SHIFTS = {"left": "ka_shift_left({0}, {1})", "right": "ka_shift_right({0}, {1})"}
#: Those whose numbers PyTorch makes ones of the tensor's type.
ROUNDED = {"fmod": "ka_fmod({0}, {1})", "remainder": "ka_remainder({0}, {1})"}
#: Powers that are written out: of real numbers, and of integers.
POWERS: dict[float, str] = {
    1: "{0}",
    2: "{0} * {0}",
    3: "{0} * {0} * {0}",
    4: "ka_square({0} * {0})",
    0.5: "ka_sqrt({0})",
}
POWERS |= {-0.5: "ka_rsqrt({0})", -1: "1 / {0}", -2: "1 / ({0} * {0})"}
INTEGER_POWERS: dict[float, str] = {1: "{0}", 2: "ka_mul({0}, {0})", 3: "ka_mul({0}, ka_mul({0}, {0}))"}


def is_integer(context: Context) -> bool:
    """Whether the node computes integers."""
    return context.node.spec.dtype in INTEGERS


def _binary(text: str, integer: str = "") -> Callable[[Context], TensorExpr]:
    return lambda context: pointwise(context, integer if integer and is_integer(context) else text, operands(context))


def _unary(text: str, integer: str) -> Callable[[Context], TensorExpr]:
    def lower(context: Context) -> TensorExpr:
        return pointwise(context, integer if is_integer(context) else text, [context.value(context.node.args[0])])

    return lower


def _sum(text: str, integer: str, scaled: str) -> Callable[[Context], TensorExpr]:
    def lower(context: Context) -> TensorExpr:
        values, alpha = operands(context), context.argument(2, "alpha", 1)
        known, factor = (integer, f"ka_mul({scaled}, {{2}})") if is_integer(context) else (text, f"{scaled} * {{2}}")
        if alpha == 1:
            return pointwise(context, known, values)
        values.append(context.operand(alpha, COMPUTE[context.node.spec.dtype]))
        return pointwise(context, known.replace(scaled, factor), values)

    return lower


def _mul(context: Context) -> TensorExpr:
    return _binary(BOOLEAN["and"] if context.node.spec.dtype == "b1" else BINARY["mul"][0], BINARY["mul"][1])(context)


def _div(context: Context) -> TensorExpr:
    """Lowers `div`: the quotient of the node's operands, exact or rounded down (rounding mode "floor") or towards zero
    ("trunc")."""
    mode = context.node.kwargs.get("rounding_mode")
    if mode == "floor":
        return _binary(*BINARY["floor_divide"])(context)
    return _binary("ka_trunc({0} / {1})" if mode == "trunc" else "{0} / {1}", "ka_divide({0}, {1})")(context)


def _pow(context: Context) -> TensorExpr:
    base, exponent = context.node.args[:2]
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        known = INTEGER_POWERS if is_integer(context) else POWERS
        if exponent in known and context.node.spec.dtype != "b1":
            return pointwise(context, known[exponent], [context.value(base)])
    return _binary(*BINARY["pow"])(context)


def _rounded(text: str) -> Callable[[Context], TensorExpr]:
    return lambda context: pointwise(context, text, beside(operands(context)))


def _addcmul(context: Context) -> TensorExpr:
    values = [context.value(operand) for operand in context.node.args[:3]]
    factor = context.operand(context.argument(3, "value", 1), COMPUTE[context.node.spec.dtype])
    integer = "ka_add({0}, ka_mul(ka_mul({3}, {1}), {2}))"
    return pointwise(context, integer if is_integer(context) else "{0} + {3} * {1} * {2}", [*values, factor])


def _not(context: Context) -> TensorExpr:
    return pointwise(
        context, "!{0}" if context.node.spec.dtype == "b1" else "~{0}", [context.value(context.node.args[0])]
    )


ARITHMETIC: dict[str, Callable[[Context], TensorExpr]] = {
    **{name: _unary(*texts) for name, texts in UNARY.items()},
    **{name: _binary(*texts) for name, texts in BINARY.items()},
    **{name: _sum(*texts) for name, texts in SUMS.items()},
    **{name: _rounded(text) for name, text in ROUNDED.items()},
    **{f"__{name}__": _binary(text) for name, text in BOOLEAN.items()},
    **{f"bitwise_{name}": _binary(text) for name, text in BOOLEAN.items()},
    **{f"__{way[0]}shift__": _binary(text) for way, text in SHIFTS.items()},
    **{f"bitwise_{way}_shift": _binary(text) for way, text in SHIFTS.items()},
    "bitwise_not": _not,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "addcmul": _addcmul,
}
