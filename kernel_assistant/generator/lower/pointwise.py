"""Elementwise operators: a table of C expressions over functions of the headers."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Const, Expr, Op, TensorExpr
from kernel_assistant.generator.lower.context import RANK, Context, broadcast, cast
from kernel_assistant.generator.lower.numbers import HALVES, of_type
from kernel_assistant.generator.lower.shared_loops import sharing_loops

#: One tensor in, same type out. {0} is of the result's C type.
UNARY = {
    name: f"ka_{name}({{0}})"
    for name in (
        "abs exp exp2 log log2 log10 log1p expm1 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh erf erfc "
        "floor ceil round trunc frac sign sgn sigmoid relu relu6 silu mish hardsigmoid hardswish log_sigmoid selu "
        "asinh acosh atanh sinc angle lgamma"
    ).split()
}
UNARY |= {"neg": "-{0}", "reciprocal": "1 / {0}", "square": "{0} * {0}", "positive": "{0}", "bitwise_not": "!{0}"}
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
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "ka_max({0}, {1})",
    "minimum": "ka_min({0}, {1})",
    "floor_divide": "ka_floor_divide({0}, {1})",
    "pow": "ka_pow({0}, {1})",
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
BOOLEAN = {"and": "({0} & {1})", "or": "({0} | {1})", "xor": "({0} ^ {1})"}
#: Those whose numbers PyTorch makes ones of the tensor's type.
ROUNDED_BINARY = {"fmod": "ka_fmod({0}, {1})", "remainder": "ka_remainder({0}, {1})"}
COMPARE = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}


def pointwise(context: Context, text: str, operands: list[TensorExpr], ctype: str = "", result: str = "") -> TensorExpr:
    """The value of C text over broadcast operands, each cast to `ctype` (default: the result's)."""
    out = result or COMPUTE[context.node.spec.dtype]
    operands = sharing_loops(context, operands)
    args = tuple(cast(operand.expr, ctype or out) for operand in operands)
    return context.result(Op(out, text, args), broadcast(*(operand.dims for operand in operands)))


def lower_pointwise(context: Context) -> TensorExpr | None:
    """The value of the node if its operator is elementwise, else None."""
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
    if name == "mul" and node.spec.dtype == "b1":
        return _binary(context, BOOLEAN["and"])
    if name in BINARY and node.kwargs.get("rounding_mode") is None:
        return _binary(context, BINARY[name])
    return None


def _unary(context: Context, name: str) -> TensorExpr:
    value = context.value(context.node.args[0])
    if COMPUTE[value.dtype] in ("int64_t", "bool") and name in ("floor", "ceil", "round", "trunc"):
        return context.result(value.expr, value.dims)
    if name == "bitwise_not" and value.expr.ctype != "bool":
        return pointwise(context, "~{0}", [value])
    return pointwise(context, UNARY[name], [value])


def _parametric(context: Context, name: str) -> TensorExpr:
    text, parameters = PARAMETRIC[name]
    ctype = COMPUTE[context.node.spec.dtype]
    numbers = [
        TensorExpr(Const(ctype, context.number(place, key, default)), (), "f32")
        for place, (key, default) in enumerate(parameters, 1)
    ]
    value = context.value(context.node.args[0])
    if name == "hardshrink":
        numbers = [of_type(number, value.dtype) for number in numbers]
    return pointwise(context, text, [value, *numbers])


def _operands(context: Context, ctype: str) -> list[TensorExpr]:
    return [context.operand(operand, ctype) for operand in context.node.args[:2]]


def _binary(context: Context, text: str) -> TensorExpr:
    return pointwise(context, text, _operands(context, COMPUTE[context.node.spec.dtype]))


def _add(context: Context, text: str) -> TensorExpr:
    ctype = COMPUTE[context.node.spec.dtype]
    left, right = _operands(context, ctype)
    alpha = context.argument(2, "alpha", 1)
    if alpha == 1:
        return pointwise(context, text.replace("{2}", "1").replace(" * 1", ""), [left, right])
    return pointwise(context, text, [left, right, context.operand(alpha, ctype)])


def _compare(context: Context, symbol: str) -> TensorExpr:
    left, right = _beside(_operands(context, ""))
    return pointwise(context, f"({{0}} {symbol} {{1}})", [left, right], _promoted([left, right]), "bool")


def _beside(values: list[TensorExpr]) -> list[TensorExpr]:
    """Operands, with a number next to a tensor converted to the tensor's dtype."""
    left, right = values
    return [of_type(left, right.dtype), of_type(right, left.dtype)]


def _rounded_binary(text: str) -> Callable[[Context], TensorExpr]:
    return lambda context: pointwise(context, text, _beside(_operands(context, COMPUTE[context.node.spec.dtype])))


def _logit(context: Context) -> TensorExpr:
    """The logit of a value, which is clamped to eps and 1 - eps if eps is given; PyTorch ignores a negative eps."""
    value, eps = context.value(context.node.args[0]), context.number(1, "eps", -1.0)
    if eps >= 0:
        bound = TensorExpr(Const(COMPUTE[context.node.spec.dtype], eps), (), "f32")
        value = pointwise(context, "({0} < {1} ? {1} : ({0} > 1 - {1} ? 1 - {1} : {0}))", [value, bound])
    return pointwise(context, "ka_log({0} / (1 - {0}))", [value])


def _promoted(values: list[TensorExpr]) -> str:
    """The C type in which values are compared. A literal counts as the type in which it is written."""
    kinds = []
    for value in values:
        if isinstance(value.expr, Const) and not value.expr.ctype:
            literal = value.expr.value
            kinds.append("bool" if isinstance(literal, bool) else "float" if isinstance(literal, float) else "int64_t")
        else:
            kinds.append(value.expr.ctype)
    return max(kinds, key=RANK.__getitem__)


def _logical(text: str) -> Callable[[Context], TensorExpr]:
    def lower(context: Context) -> TensorExpr:
        values = [context.operand(operand, "bool") for operand in context.node.args]
        return pointwise(context, text, values, "bool", "bool")

    return lower


def _bitwise(text: str) -> Callable[[Context], TensorExpr]:
    return lambda context: _binary(context, text)


def _pow(context: Context) -> TensorExpr:
    base, exponent = context.node.args[:2]
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        known = {2: "{0} * {0}", 3: "{0} * {0} * {0}", 1: "{0}", 0.5: "ka_sqrt({0})", -0.5: "ka_rsqrt({0})"}
        known |= {-1: "1 / {0}", -2: "1 / ({0} * {0})", 4: "ka_square({0} * {0})"}
        ctype = COMPUTE[context.node.spec.dtype]
        if exponent in known and (exponent > 0 or ctype in ("float", "double")):
            return pointwise(context, known[exponent], [context.value(base)])
    return _binary(context, BINARY["pow"])


def _div(context: Context) -> TensorExpr:
    mode = context.node.kwargs.get("rounding_mode")
    if mode == "floor":
        return _binary(context, BINARY["floor_divide"])
    if mode == "trunc":
        integral = COMPUTE[context.node.spec.dtype] == "int64_t"
        return _binary(context, "{0} / {1}" if integral else "ka_trunc({0} / {1})")
    return _binary(context, BINARY["div"])


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
    ctype = COMPUTE[context.node.spec.dtype]
    condition, then, other = sharing_loops(context, [condition, then, other])
    args: tuple[Expr, ...] = (cast(condition.expr, "bool"), cast(then.expr, ctype), cast(other.expr, ctype))
    return context.result(Op(ctype, "({0} ? {1} : {2})", args), broadcast(condition.dims, then.dims, other.dims))


def _masked_fill(context: Context) -> TensorExpr:
    value, mask = (context.value(operand) for operand in context.node.args[:2])
    fill = context.operand(context.node.args[2], COMPUTE[context.node.spec.dtype])
    return _select(context, mask, fill, value)


def _lerp(context: Context) -> TensorExpr:
    ctype = COMPUTE[context.node.spec.dtype]
    values = [context.operand(operand, ctype) for operand in context.node.args[:3]]
    return pointwise(context, "ka_lerp({0}, {1}, {2})", values)


def _addc(text: str) -> Callable[[Context], TensorExpr]:
    def lower(context: Context) -> TensorExpr:
        values = [context.value(operand) for operand in context.node.args[:3]]
        ctype = COMPUTE[context.node.spec.dtype]
        return pointwise(context, text, [*values, context.operand(context.argument(3, "value", 1), ctype)])

    return lower


def _rrelu(context: Context) -> TensorExpr:
    """In evaluation the slope of rrelu is the middle of its bounds."""
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
    """A dtype cast. Half types round here, because an explicit cast is meant."""
    value = context.value(context.node.args[0])
    dtype = context.node.spec.dtype
    expr = cast(value.expr, COMPUTE[dtype])
    if dtype in HALVES and value.dtype != dtype:
        expr = Op("float", f"ka_round_{dtype}({{0}})", (expr,))
    elif dtype in ("i32", "i16", "i8", "u8") and value.dtype != dtype:
        expr = Op("int64_t", "(int64_t)(" + {"u8": "uint8_t"}.get(dtype, f"int{dtype[1:]}_t") + "){0}", (expr,))
    return context.result(expr, value.dims)


def _fill(literal: float | None, at: int = 1) -> Callable[[Context], TensorExpr]:
    """A constant: `literal`, or else the argument at the position `at`."""

    def lower(context: Context) -> TensorExpr:
        number = literal if literal is not None else context.argument(at, "fill_value")
        dims: tuple[tuple[()], ...] = ((),) * len(context.node.spec.shape)
        return context.result(context.operand(number, COMPUTE[context.node.spec.dtype]).expr, dims)

    return lower


def _test(text: str) -> Callable[[Context], TensorExpr]:
    return lambda context: pointwise(context, text, [context.value(context.node.args[0])], "float", "bool")


def _copy(context: Context) -> TensorExpr:
    """A copy of a value, written for another part in the order of its own dimensions."""
    value = context.value(context.node.args[0])
    return context.result(value.expr, value.dims)


SPECIAL: dict[str, Callable[[Context], TensorExpr]] = {
    "ka_copy": _copy,
    "add": lambda context: _add(context, "{0} + {1} * {2}"),
    "sub": lambda context: _add(context, "{0} - {1} * {2}"),
    "rsub": lambda context: _add(context, "{1} - {0} * {2}"),
    "pow": _pow,
    "div": _div,
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": _bound("ka_max({0}, {1})"),
    "clamp_max": _bound("ka_min({0}, {1})"),
    "logit": _logit,
    "where": _where,
    "masked_fill": _masked_fill,
    "lerp": _lerp,
    "addcmul": _addc("{0} + {3} * {1} * {2}"),
    "addcdiv": _addc("{0} + {3} * {1} / {2}"),
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
    "signbit": _test("ka_signbit({0})"),
    "full": _fill(None),
    "full_like": _fill(None),
    "new_full": _fill(None, 2),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _fill(1)),
    # What is in memory that nothing has written is nobody's business.
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty"), _fill(0)),
    "scalar_tensor": lambda context: context.result(
        context.operand(context.node.args[0], COMPUTE[context.node.spec.dtype]).expr, ()
    ),
}
SPECIAL |= {name: _rounded_binary(text) for name, text in ROUNDED_BINARY.items()}
SPECIAL |= {f"__{name}__": _bitwise(text) for name, text in BOOLEAN.items()}
SPECIAL |= {f"bitwise_{name}": _bitwise(text) for name, text in BOOLEAN.items()}
