"""The rule KA001: a matrix product is computed in full float32 on a GPU that has TF32."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_assistant.source.lint.hint import RuleHint
from kernel_assistant.source.lint.rules.base import Method

CODE = "KA001"
NAME = "full-fp32 product"

#: Without convolutions and recurrent networks, for which cuDNN may use TF32 by default.
_MODULES = frozenset("Linear Bilinear MultiheadAttention TransformerEncoderLayer TransformerDecoderLayer".split())
_FUNCTIONS = frozenset("matmul mm bmm einsum addmm baddbmm addbmm linear bilinear mv inner tensordot".split())
_OTHER_TYPES = frozenset("half bfloat16 float16 autocast float64 double custom_fwd float8_e4m3fn int8".split())


def find(method: Method) -> Iterator[RuleHint]:
    """Yields a hint for the first product of the class; none if the file enables TF32 or the class names another
    dtype."""
    machine = method.scope.around.machine
    if not (method.first and machine.tensor_cores) or method.scope.around.tf32 or _has_other_types(method):
        return
    for node in (node for one in method.scope.methods for node in ast.walk(one)):
        if isinstance(node, (ast.Call, ast.BinOp)) and _is_product(method, node):
            gain = f"; {machine.tf32_gain}" if machine.tf32_gain else ""
            yield RuleHint(
                node,
                f"full float32 product: TF32 is off on {machine.name} unless the program turns it on, "
                f'torch.set_float32_matmul_precision("high") does{gain}',
            )
            return


def _is_product(method: Method, node: ast.Call | ast.BinOp) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    if method.scope.submodule(node).rpartition(".")[2] in _MODULES:
        return method.scope.submodule(node).startswith("torch.nn.")
    plain = (method.scope.origin(node.func) or "").startswith("torch.")
    tensor = plain or method.tensors.is_tensor(method.scope.operand(node))
    return tensor and method.scope.function(node) in _FUNCTIONS


def _has_other_types(method: Method) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr in _OTHER_TYPES)
        or (isinstance(node, ast.Name) and node.id in _OTHER_TYPES)
        for node in ast.walk(method.scope.node)
    )
