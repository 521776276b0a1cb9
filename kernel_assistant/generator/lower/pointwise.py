"""Lowers elementwise operators by a table of C expressions, which call functions of the vetted headers (`ka/*.h`)."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Const, Op, TensorExpr
from kernel_assistant.generator.ir.operators import HIGH
from kernel_assistant.generator.lower.arithmetic.elementwise import beside, operands, pointwise
from kernel_assistant.generator.lower.arithmetic.operators import ARITHMETIC
from kernel_assistant.generator.lower.arithmetic.promotion import common_dtype
from kernel_assistant.generator.lower.context import Context, broadcast
from kernel_assistant.generator.lower.numbers import HALVES, INTEGERS, NARROW, converted, of_type, real
from kernel_assistant.generator.lower.shared_loops import sharing_loops

#: One tensor in, same type out. {0} is of the result's C type.
UNARY = {
    name: f"ka_{name}({{0}})"
    for name in (
        "abs exp exp2 log log2 log10 log1p expm1 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh erf erfc "
        "floor ceil round trunc frac sign sgn sigmoid relu relu6 silu mish hardsigmoid hardswish log_sigmoid selu "
        "asinh acosh atanh sinc angle lgamma digamma erfinv i0"
    ).split()
}
UNARY |= {"reciprocal": "1 / {0}", "positive": "{0}"}
UNARY |= {"ka_mantissa": "ka_mantissa({0})"}
UNARY |= {"deg2rad": "{0} * 0.017453292519943295f", "rad2deg": "{0} * 57.29577951308232f"}

#: One tensor and numbers: (C text, ((argument, default), …)).
PARAMETRIC: dict[str, tuple[str, tuple[tuple[str, float], ...]]] = {
    "leaky_relu": ("ka_leaky_relu({0}, {1})", (("negative_slope", 0.01),)),
    "elu": ("ka_elu({0}, {1}, {2}, {3})", (("alpha", 1.0), ("scale", 1.0), ("input_scale", 1.0))),
    "celu": ("ka_celu({0}, {1})", (("alpha", 1.0),)),
    "softplus": ("ka_softplus({0}, {1}, {2})", (("beta", 1.0), ("threshold", 20.0))),
    "hardtanh": ("ka_clamp({0}, {1}, {2})", (("min_val", -1.0), ("max_val", 1.0))),
    "threshold": ("({0} <= {1} ? {2} : {0})", (("threshold", 0.0), ("value", 0.0))),
    "hardshrink": ("({0} >= -{1} && {0} <= {1} ? 0 * {0} : {0})", (("lambd", 0.5),)),
    "softshrink": ("ka_softshrink({0}, {1})", (("lambd", 0.5),)),
    "nan_to_num": (
        "ka_nan_to_num({0}, {1}, {2}, {3})",
        (("nan", 0.0), ("posinf", 3.4028234663852886e38), ("neginf", -3.4028234663852886e38)),
    ),
}

#: Two operands of the result's type.
BINARY = {
    "maximum": "ka_max({0}, {1})",
    "minimum": "ka_min({0}, {1})",
    "atan2": "ka_atan2({0}, {1})",
    "hypot": "ka_sqrt({0} * {0} + {1} * {1})",
    "xlogy": "({0} == 0 ? 0 : {0} * ka_log({1}))",
    "fmax": "ka_fmax({0}, {1})",
    "fmin": "ka_fmin({0}, {1})",
    "copysign": "ka_copysign({0}, {1})",
    "logaddexp": "ka_logaddexp({0}, {1})",
    "logaddexp2": "ka_logaddexp2({0}, {1})",
    "heaviside": "ka_heaviside({0}, {1})",
    "ldexp": "{0} * ka_exp2({1})",
}
COMPARE = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}


def lower_pointwise(context: Context) -> TensorExpr | None:
    """Returns the value of the current node if its operator is elementwise, else None."""
    node = context.node
    name = node.op.partition(".")[0]
    if name in UNARY and len(node.args) == 1:
        return _unary(context, name)
    if name in PARAMETRIC:
        return _parametric(context, name)
    if name in COMPARE:
        return _compare(context, COMPARE[name])
    if name in SPECIAL:
        return SPECIAL[name](context)
    if name in BINARY:
        return _binary(context, BINARY[name])
    return None


def _unary(context: Context, name: str) -> TensorExpr:
    value = context.value(context.node.args[0])
    if value.dtype in (*INTEGERS, "b1") and name in ("floor", "ceil", "round", "trunc"):
        return context.result(value.expr, value.dims)
    return pointwise(context, UNARY[name], [value])


def _parametric(context: Context, name: str) -> TensorExpr:
    text, parameters = PARAMETRIC[name]
    ctype = COMPUTE[context.node.spec.dtype]
    numbers = [
        TensorExpr(Const(ctype, context.number(position, key, default)), (), "f32")
        for position, (key, default) in enumerate(parameters, 1)
    ]
    value = context.value(context.node.args[0])
    if name == "hardshrink":
        numbers = [of_type(number, value.dtype) for number in numbers]
    return pointwise(context, text, [value, *numbers])


def _binary(context: Context, text: str) -> TensorExpr:
    return pointwise(context, text, operands(context))


def _compare(context: Context, symbol: str) -> TensorExpr:
    dtype = common_dtype(context, context.node.args[:2])
    return pointwise(context, f"({{0}} {symbol} {{1}})", beside(operands(context, dtype)), dtype, "b1")


def _logit(context: Context) -> TensorExpr:
    """Lowers `logit`. The value is clamped to eps and 1 - eps if eps is given; PyTorch ignores a negative eps."""
    value, eps = context.value(context.node.args[0]), context.number(1, "eps", -1.0)
    if eps >= 0:
        bound = TensorExpr(Const(COMPUTE[context.node.spec.dtype], eps), (), "f32")
        value = pointwise(context, "({0} < {1} ? {1} : ({0} > 1 - {1} ? 1 - {1} : {0}))", [value, bound])
    return pointwise(context, "ka_log({0} / (1 - {0}))", [value])


def _logical(text: str) -> Callable[[Context], TensorExpr]:
    def lower(context: Context) -> TensorExpr:
        values = [context.operand(operand, "bool") for operand in context.node.args]
        return pointwise(context, text, values, "b1", "b1")

    return lower


def _clamp(context: Context) -> TensorExpr:
    ctype = COMPUTE[context.node.spec.dtype]
    low, high = context.argument(1, "min"), context.argument(2, "max")
    value = context.value(context.node.args[0])
    if low is None and high is None:
        raise Unsupported("clamp without bounds")
    if low is None:
        return pointwise(context, "ka_min({0}, {1})", [value, context.operand(high, ctype)])
    if high is None:
        return pointwise(context, "ka_max({0}, {1})", [value, context.operand(low, ctype)])
    return pointwise(
        context, "ka_clamp({0}, {1}, {2})", [value, context.operand(low, ctype), context.operand(high, ctype)]
    )


def _bound(text: str) -> Callable[[Context], TensorExpr]:
    return lambda context: _binary(context, text)


def _where(context: Context) -> TensorExpr:
    ctype = COMPUTE[context.node.spec.dtype]
    condition = context.value(context.node.args[0])
    then, other = (context.operand(operand, ctype) for operand in context.node.args[1:3])
    return _select(context, condition, then, other)


def _select(context: Context, condition: TensorExpr, then: TensorExpr, other: TensorExpr) -> TensorExpr:
    dtype = context.node.spec.dtype
    condition, then, other = sharing_loops(context, [condition, then, other])
    args = (converted(condition, "b1"), converted(then, dtype), converted(other, dtype))
    dims = broadcast(condition.dims, then.dims, other.dims)
    width = f"({NARROW[dtype]})" if dtype in NARROW else ""
    return context.result(Op(COMPUTE[dtype], f"({{0}} ? {width}{{1}} : {width}{{2}})", args), dims)


def _masked_fill(context: Context) -> TensorExpr:
    value, mask = (context.value(operand) for operand in context.node.args[:2])
    fill = context.operand(context.node.args[2], COMPUTE[context.node.spec.dtype])
    return _select(context, mask, fill, value)


def _lerp(context: Context) -> TensorExpr:
    ctype = COMPUTE[context.node.spec.dtype]
    values = [context.operand(operand, ctype) for operand in context.node.args[:3]]
    return pointwise(context, "ka_lerp({0}, {1}, {2})", values)


def _addcdiv(context: Context) -> TensorExpr:
    values = [context.value(operand) for operand in context.node.args[:3]]
    factor = context.operand(context.argument(3, "value", 1), COMPUTE[context.node.spec.dtype])
    return pointwise(context, "{0} + {3} * {1} / {2}", [*values, factor])


def _rrelu(context: Context) -> TensorExpr:
    """Lowers `rrelu` in evaluation mode, in which its slope is the middle of its bounds. Raises Unsupported in training
    mode."""
    if context.argument(3, "training", False):
        raise Unsupported("rrelu in training mode")
    slope = (context.number(1, "lower", 1 / 8) + context.number(2, "upper", 1 / 3)) / 2
    factor = TensorExpr(Const(COMPUTE[context.node.spec.dtype], slope), (), "f32")
    return pointwise(context, "ka_leaky_relu({0}, {1})", [context.value(context.node.args[0]), factor])


def _gelu(context: Context) -> TensorExpr:
    tanh = context.argument(1, "approximate", "none") == "tanh"
    return pointwise(context, "ka_gelu_tanh({0})" if tanh else "ka_gelu({0})", [context.value(context.node.args[0])])


def _prelu(context: Context) -> TensorExpr:
    value, weight = (context.value(operand) for operand in context.node.args[:2])
    if len(value.dims) > 1:
        weight = TensorExpr(weight.expr, (*weight.dims, *((),) * (len(value.dims) - 2)), weight.dtype)
    else:
        weight = TensorExpr(weight.expr, (), weight.dtype)
    return pointwise(context, "ka_leaky_relu({0}, {1})", [value, weight])


def _convert(context: Context) -> TensorExpr:
    """Lowers a dtype cast. Unlike other operators, it rounds to half types, because the module asks for this dtype."""
    value = context.value(context.node.args[0])
    dtype = context.node.spec.dtype
    if dtype in HALVES and value.dtype != dtype:
        return context.result(Op("float", f"ka_round_{dtype}({{0}})", (real(value, "float"),)), value.dims)
    return context.result(converted(value, dtype), value.dims)


def _fill(literal: float | None, at: int = 1) -> Callable[[Context], TensorExpr]:
    """Returns the lowering of a constant tensor: all elements are `literal`, or the node's argument at the position
    `at` if `literal` is None."""

    def lower(context: Context) -> TensorExpr:
        number = literal if literal is not None else context.argument(at, "fill_value")
        dims: tuple[tuple[()], ...] = ((),) * len(context.node.spec.shape)
        return context.result(context.operand(number, COMPUTE[context.node.spec.dtype]).expr, dims)

    return lower


def _test(text: str) -> Callable[[Context], TensorExpr]:
    def lower(context: Context) -> TensorExpr:
        value = context.value(context.node.args[0])
        return pointwise(context, text, [value], "f64" if value.dtype == "f64" else "f32", "b1")

    return lower


def _exponent(context: Context) -> TensorExpr:
    """Lowers `ka_exponent`, the second result of `frexp`, whose first one is `ka_mantissa`."""
    value = context.value(context.node.args[0])
    return pointwise(context, "ka_exponent({0})", [value], "f64" if value.dtype == "f64" else "f32", "i32")


def _nextafter(context: Context) -> TensorExpr:
    if context.node.spec.dtype in HALVES:
        raise Unsupported("nextafter of a half type, which is computed in float32")
    return _binary(context, "ka_nextafter({0}, {1})")


def _copy(context: Context) -> TensorExpr:
    """Lowers `ka_copy`: writes a value to memory for another kernel, in the order of the value's own dimensions."""
    value = context.value(context.node.args[0])
    return context.result(value.expr, value.dims)


def _high(context: Context) -> TensorExpr:
    """Lowers `ka_high`: truncates a float32 value to TF32's mantissa, and gives 0 where the value is not finite, so
    that the difference between value and result keeps infinities and NaNs.
    """
    text = "(ka_abs({0}) < INFINITY ? ka_as_float(ka_as_int({0}) & ~0x1fff) : 0.0f)"
    return pointwise(context, text, [context.value(context.node.args[0])], "f32")


SPECIAL: dict[str, Callable[[Context], TensorExpr]] = {
    **ARITHMETIC,
    "ka_copy": _copy,
    HIGH: _high,
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": _bound("ka_max({0}, {1})"),
    "clamp_max": _bound("ka_min({0}, {1})"),
    "logit": _logit,
    "where": _where,
    "masked_fill": _masked_fill,
    "lerp": _lerp,
    "addcdiv": _addcdiv,
    "gelu": _gelu,
    "prelu": _prelu,
    "rrelu": _rrelu,
    "_prelu_kernel": _prelu,
    "_to_copy": _convert,
    "to": _convert,
    "type_as": _convert,
    "logical_and": _logical("({0} & {1})"),
    "logical_or": _logical("({0} | {1})"),
    "logical_xor": _logical("({0} ^ {1})"),
    "logical_not": _logical("!{0}"),
    "isnan": _test("({0} != {0})"),
    "isinf": _test("(ka_abs({0}) == INFINITY)"),
    "isfinite": _test("(ka_abs({0}) < INFINITY)"),
    "ka_exponent": _exponent,
    "nextafter": _nextafter,
    "signbit": _test("ka_signbit({0})"),
    "full": _fill(None),
    "full_like": _fill(None),
    "new_full": _fill(None, 2),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _fill(1)),
    # What is in memory that nothing has written is nobody's business.
    **dict.fromkeys(("zero", "zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty"), _fill(0)),
    "scalar_tensor": lambda context: context.result(
        context.operand(context.node.args[0], COMPUTE[context.node.spec.dtype]).expr, ()
    ),
}
