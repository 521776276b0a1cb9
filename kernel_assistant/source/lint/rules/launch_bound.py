"""The rule KA006: a recurrent network is written as a Python loop over its steps, so that kernel launches take most of
its time."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_assistant.source.lint.classes import walk
from kernel_assistant.source.lint.hint import RuleHint
from kernel_assistant.source.lint.rules.base import Method

CODE = "KA006"
NAME = "launch-bound recurrent net"
_CELLS = ("torch.nn.LSTMCell", "torch.nn.GRUCell", "torch.nn.RNNCell")
_PRODUCTS = frozenset("matmul mm bmm addmm linear einsum baddbmm".split())


def find(method: Method) -> Iterator[RuleHint]:
    inner: set[int] = set()
    for loop in method.loops:
        if id(loop) in inner:
            continue
        cell = _cell(method, loop)
        if cell:
            message = (
                f"nn.{cell} in a Python loop launches some ten kernels a step; nn.{cell.removesuffix('Cell')} runs the "
                "whole sequence in cuDNN, and a kernel of its own keeps the weights on the chip"
            )
            yield RuleHint(loop, message)
        elif isinstance(loop, ast.For) and is_recurrent(method, loop):
            yield RuleHint(
                loop,
                "a recurrence in a Python loop launches several kernels a step, each too small to fill a GPU; what "
                "does not depend on the last step can leave the loop, and one kernel can run all steps",
            )
        else:
            continue
        inner |= {id(node) for node in ast.walk(loop)}


def is_recurrent(method: Method, loop: ast.For) -> bool:
    """Whether a loop over a dimension passes a value from one iteration to the next through a matrix product or a
    cell of torch.nn."""
    if _cell(method, loop):
        return True
    if loop not in method.tensor_loops:
        return False
    carried = _carried(loop)
    products = [node for statement in loop.body for node in ast.walk(statement) if _is_product(method, node)]
    return any(
        isinstance(inner, ast.Name) and inner.id in carried for product in products for inner in ast.walk(product)
    )


def _carried(loop: ast.For) -> set[str]:
    """Returns the names whose value the loop's body reads before it assigns them: values of the previous iteration."""
    exposed: set[str] = set()
    stored: set[str] = set()
    for node in (inner for statement in loop.body for inner in walk(statement)):
        if not isinstance(node, ast.stmt):
            continue
        own = [
            one for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt) for one in ast.walk(child)
        ]
        names = [one for one in own if isinstance(one, ast.Name)]
        loads = {one.id for one in names if isinstance(one.ctx, ast.Load)}
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            loads.add(node.target.id)
        exposed |= loads - stored
        stored |= {one.id for one in names if isinstance(one.ctx, ast.Store)}
    return exposed & stored


def _cell(method: Method, loop: ast.For | ast.While) -> str:
    for node in (node for statement in loop.body for node in ast.walk(statement)):
        if isinstance(node, ast.Call) and method.scope.submodule(node) in _CELLS:
            over_layers = isinstance(loop, ast.For) and method.tensors.kind(loop.iter).value == "unknown"
            return "" if over_layers and not _counts(loop) else method.scope.submodule(node).rpartition(".")[2]
    return ""


def _counts(loop: ast.For | ast.While) -> bool:
    """Whether a loop runs over the result of a call such as `range(...)`, and not over a list of layers."""
    return isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call)


def _is_product(method: Method, node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    if not isinstance(node, ast.Call):
        return False
    return method.scope.submodule(node) == "torch.nn.Linear" or method.scope.function(node) in _PRODUCTS
