"""Writes an operator of a graph as the PyTorch call that people would write, and names the operator as people would."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.records import Node
from kernel_assistant.records.graph import Operand

Written = Callable[[Operand], str]


class Unwritten(Exception):
    """Raised for an operator that this module cannot write as a PyTorch call, or not with these operands. The message
    is the operator's name."""


BATCH_NORM = "_native_batch_norm_legit_no_training"
_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "gt": ">", "lt": "<", "ge": ">=", "le": "<="}
_FUNCTIONAL = (
    "adaptive_avg_pool2d avg_pool1d avg_pool2d avg_pool3d celu cosine_similarity elu gelu glu group_norm hardsigmoid "
    "hardswish hardtanh layer_norm leaky_relu log_softmax log_sigmoid max_pool1d max_pool2d max_pool3d mish pad "
    "pixel_shuffle prelu relu relu6 rms_norm selu silu softmax softplus threshold"
).split()
_TORCH = (
    "abs addcdiv addcmul asinh atan ceil cos cosh cummax cummin cumprod cumsum erf erfc exp exp2 expm1 flip floor "
    "fmax fmin frac gather index_select lerp linalg_vector_norm log log1p logaddexp maximum minimum neg reciprocal "
    "repeat_interleave roll round rsqrt sigmoid sign sin sinh sqrt square tanh tril trunc triu where"
).split()
_METHODS = (
    "amax amin argmax argmin clamp clamp_min expand logsumexp masked_fill max mean min permute prod repeat select "
    "split squeeze std sum transpose unsqueeze var view"
).split()
_TORCH_PATHS = {"linalg_vector_norm": "linalg.vector_norm"}
_FUNCTIONAL_PATHS = {"log_sigmoid": "logsigmoid"}
#: Operators that compute nothing, so that nobody would name them among a task's operators.
_UNNAMED = frozenset(
    "_to_copy arange cat clone expand flip getitem permute repeat repeat_interleave roll select slice split squeeze "
    "stack transpose unsqueeze view".split()
)
_NAMES = {BATCH_NORM: "batch_norm", "rsub": "sub"}


def name_of(node: Node) -> str:
    """Returns the operator's plain name, such as `softmax` for `softmax.int`; "" if the operator only moves or converts
    values."""
    base = node.op.partition(".")[0]
    return "" if base in _UNNAMED else _NAMES.get(base, base)


def call(node: Node, written: Written) -> str:
    """Returns the source of the operator's call, such as `torch.exp(x)`. `written` returns the source of an operand.
    Raises Unwritten if the call is unknown."""
    base = node.op.partition(".")[0]
    if base in _SPECIAL:
        return _SPECIAL[base](node, written)
    if (base in ("std", "var") and "correction" not in node.kwargs) or (base == "hardtanh" and len(node.args) < 3):
        raise Unwritten(node.op)  # the graph of the readable call would contain the operands that are missing here
    args = [written(one) for one in node.args]
    words = [f"{key}={written(one)}" for key, one in node.kwargs.items()]
    if base in _BINARY and not words and len(args) == 2:
        return f"{args[0]} {_BINARY[base]} {args[1]}"
    if base in _FUNCTIONAL:
        return f"F.{_FUNCTIONAL_PATHS.get(base, base)}({', '.join([*args, *words])})"
    if base in _METHODS:
        return f"{args[0]}.{base}({', '.join([*args[1:], *words])})"
    if base in _TORCH or base in _BINARY:
        return f"torch.{_TORCH_PATHS.get(base, base)}({', '.join([*args, *words])})"
    raise Unwritten(node.op)


def _pow(node: Node, written: Written) -> str:
    return f"{written(node.args[0])} ** {written(node.args[1])}"


def _rsub(node: Node, written: Written) -> str:
    return f"{written(node.args[1])} - {written(node.args[0])}"


def _to_copy(node: Node, written: Written) -> str:
    return f"{written(node.args[0])}.to({written(node.kwargs['dtype'])})"


def _getitem(node: Node, written: Written) -> str:
    return f"{written(node.args[0])}[{written(node.args[1])}]"


def _clone(node: Node, written: Written) -> str:
    return f"{written(node.args[0])}.contiguous()"


def _joined(node: Node, written: Written) -> str:
    return f"torch.{node.op}({', '.join(map(written, node.args))})"


def _embedding(node: Node, written: Written) -> str:
    table, index, *rest = map(written, node.args)
    return f"F.embedding({', '.join([index, table, *rest])})"


def _batch_norm(node: Node, written: Written) -> str:
    x, weight, bias, mean, variance, *_, eps = map(written, node.args)
    return f"F.batch_norm({x}, {mean}, {variance}, {weight}, {bias}, eps={eps})"


def _instance_norm(node: Node, written: Written) -> str:
    x, weight, bias, *_, eps = map(written, node.args)
    return f"F.instance_norm({x}, weight={weight}, bias={bias}, eps={eps})"


_SPECIAL: dict[str, Callable[[Node, Written], str]] = {
    "pow": _pow,
    "rsub": _rsub,
    "_to_copy": _to_copy,
    "getitem": _getitem,
    "clone": _clone,
    "cat": _joined,
    "stack": _joined,
    "embedding": _embedding,
    BATCH_NORM: _batch_norm,
    "instance_norm": _instance_norm,
}
