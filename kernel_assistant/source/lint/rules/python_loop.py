"""The rule KA003: a Python loop over a dimension of a tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_assistant.source.lint.hint import RuleHint
from kernel_assistant.source.lint.rules.base import Method
from kernel_assistant.source.lint.rules.launch_bound import is_recurrent

CODE = "KA003"
NAME = "Python loop over a tensor dimension"
_MESSAGE = (
    "a Python loop over a tensor dimension launches its operations once for each element; one operation over the whole "
    "dimension, or a kernel, does it at once"
)


def find(method: Method) -> Iterator[RuleHint]:
    """Yields a hint for each `for` statement or comprehension over a dimension, except recurrent loops, which are
    KA006."""
    inner: set[int] = set()
    for loop in method.tensor_loops:
        if id(loop) in inner or is_recurrent(method, loop):
            continue
        inner |= {id(node) for node in ast.walk(loop)}
        yield RuleHint(loop, _MESSAGE)
    for node in method.nodes:
        if (
            isinstance(node, (ast.ListComp, ast.GeneratorExp))
            and id(node) not in inner
            and _is_tensor_loop(method, node)
        ):
            yield RuleHint(node, _MESSAGE)


def _is_tensor_loop(method: Method, node: ast.ListComp | ast.GeneratorExp) -> bool:
    first = node.generators[0]
    loop = ast.For(target=first.target, iter=first.iter, body=[ast.Expr(value=node.elt)], orelse=[])
    by_index = isinstance(first.iter, ast.Call) and isinstance(first.iter.func, ast.Name)
    computes = any(isinstance(inner, (ast.Call, ast.BinOp)) for inner in ast.walk(node.elt))
    return computes and by_index and method.over_dimension(loop)
