"""The rule KA007: layout changes cancel each other, or can be replaced by one change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from kernel_assistant.source.lint.classes import blocks, dotted
from kernel_assistant.source.lint.hint import RuleHint
from kernel_assistant.source.lint.rules.base import Method

CODE = "KA007"
NAME = "redundant layout change"
_TRANSPOSES = frozenset("transpose swapaxes swapdims".split())
_PERMUTES = frozenset(["permute"])


def find(method: Method) -> Iterator[RuleHint]:
    before = _values_before(method)
    for node in method.nodes:
        if not isinstance(node, (ast.Call, ast.Attribute)):
            continue
        inner = _operand(method, node)
        if isinstance(inner, ast.Name):
            inner = before.get((id(node), inner.id), inner)
        what = _redundant(method, node, inner) if inner is not None else ""
        if what:
            yield RuleHint(node, what)


def _redundant(method: Method, node: ast.Call | ast.Attribute, inner: ast.expr) -> str:
    name, other = _change(method, node), _change(method, inner)
    if not name or not other:
        return ""
    if name == other == "contiguous":
        return "contiguous() of what contiguous() gave does nothing"
    if name in ("T", "mT", "H", "mH", "t") and name == other:
        return f"{name} twice gives the tensor back"
    if name == other == "transpose" and _dims(method, node) and _dims(method, node) == _dims(method, inner):
        return "transposing the same two dimensions twice gives the tensor back"
    if name == other == "permute":
        one, two = _order(method, node), _order(method, inner)
        both = [two[at] for at in one] if one and two and len(one) == len(two) and max(one) < len(two) else []
        if both and both == sorted(both):
            return "the second permutation takes the first one back"
        return f"two permutations are one: permute({', '.join(map(str, both))})" if both else ""
    return ""


def _change(method: Method, node: ast.expr) -> str:
    """Returns the name of the layout change that `node` makes, "" if it makes none. A call of `contiguous` without
    arguments counts as a layout change."""
    if isinstance(node, ast.Attribute):
        return node.attr if node.attr in ("T", "mT", "H", "mH") and method.tensors.is_tensor(node.value) else ""
    if not isinstance(node, ast.Call) or not method.tensors.is_tensor(method.scope.operand(node)):
        return ""
    name = method.scope.function(node)
    if name in _TRANSPOSES:
        return "transpose"
    if name == "contiguous":
        return "" if node.keywords or node.args else name
    return name if name in _PERMUTES or name == "t" else ""


def _operand(method: Method, node: ast.Call | ast.Attribute) -> ast.expr | None:
    return node.value if isinstance(node, ast.Attribute) else method.scope.operand(node)


def _dims(method: Method, node: ast.expr) -> frozenset[int]:
    return frozenset(_numbers(method, node)) if len(_numbers(method, node)) == 2 else frozenset()


def _order(method: Method, node: ast.expr) -> list[int]:
    """Returns the permutation of `permute(...)`, [] if its arguments are not literal non-negative numbers."""
    numbers = _numbers(method, node)
    return numbers if sorted(numbers) == list(range(len(numbers))) else []


def _numbers(method: Method, node: ast.expr) -> list[int]:
    if not isinstance(node, ast.Call) or node.keywords:
        return []
    given = [one for one in node.args if one is not method.scope.operand(node)]
    if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
        given = given[0].elts
    try:
        return [int(ast.literal_eval(one)) for one in given]
    except (ValueError, TypeError):
        return []


def _values_before(method: Method) -> dict[tuple[int, str], ast.expr]:
    """Maps (id of a node, name) to the expression that the statement directly above assigned to `name`. There is an
    entry for each node of a statement that follows such an assignment in the same block."""
    values = {}
    for block in blocks(method.node.body):
        for one, next_one in pairwise(block):
            if isinstance(one, ast.Assign) and len(one.targets) == 1 and (name := dotted(one.targets[0])):
                for node in ast.walk(next_one):
                    values[id(node), name] = one.value
    return values
