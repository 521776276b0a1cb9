"""The rule KA004: a loop extends a tensor by a concatenation in each iteration, or makes the same copy again and
again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_assistant.source.lint.hint import RuleHint
from kernel_assistant.source.lint.rules.base import Method

CODE = "KA004"
NAME = "concatenation or copy in a loop"
_JOINS = frozenset("cat concat concatenate hstack vstack dstack".split())
_COPIES = frozenset("clone contiguous repeat repeat_interleave".split())


def find(method: Method) -> Iterator[RuleHint]:
    seen: set[int] = set()
    for loop in method.loops:
        stored = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        changed = stored | _written(loop)
        for node in (node for statement in loop.body for node in ast.walk(statement)):
            if id(node) in seen or not isinstance(node, ast.Assign):
                continue
            seen.add(id(node))
            if _grows(method, node) and not _begun_anew(method, loop, node):
                yield RuleHint(
                    node.value,
                    "each turn copies everything joined so far; keep the parts in a list and join them once behind the "
                    "loop, or write into a tensor made before it",
                )
            elif _copies_again(method, node, changed):
                yield RuleHint(node.value, "each turn makes the same copy; make it once before the loop")


def _grows(method: Method, node: ast.Assign) -> bool:
    """Whether a concatenation is assigned to one of its own operands: `out = torch.cat([out, part])`."""
    value = node.value
    if not (isinstance(value, ast.Call) and method.scope.function(value) in _JOINS and value.args):
        return False
    if not (method.scope.origin(value.func) or "").startswith("torch."):
        return False
    joined = value.args[0]
    parts = joined.elts if isinstance(joined, (ast.List, ast.Tuple)) else []
    names = {target.id for target in node.targets if isinstance(target, ast.Name)}
    return len(names) == 1 and len(parts) > 1 and any(isinstance(part, ast.Name) and part.id in names for part in parts)


def _begun_anew(method: Method, loop: ast.For | ast.While, join: ast.Assign) -> bool:
    """Whether the loop also assigns another value to the name that `join` assigns, so that the concatenation does not
    grow in every iteration."""
    (name,) = (target.id for target in join.targets if isinstance(target, ast.Name))
    others = (node for node in ast.walk(loop) if isinstance(node, ast.Assign) and not _grows(method, node))
    stored = (target for node in others for target in node.targets)
    return any(isinstance(inner, ast.Name) and inner.id == name for target in stored for inner in ast.walk(target))


def _copies_again(method: Method, node: ast.Assign, changed: set[str]) -> bool:
    """Whether each iteration makes the same copy: `y = x.clone()`, where the loop changes neither `x`, nor `y` in
    place."""
    value = node.value
    if not (isinstance(value, ast.Call) and method.scope.function(value) in _COPIES):
        return False
    operand = method.scope.operand(value)
    if not isinstance(operand, ast.Name) or not method.tensors.is_tensor(operand):
        return False
    read = {inner.id for inner in ast.walk(value) if isinstance(inner, ast.Name)}
    targets = {target.id for target in node.targets if isinstance(target, ast.Name)}
    return bool(targets) and not read & changed and not any(name + " in place" in changed for name in targets)


def _written(loop: ast.For | ast.While) -> set[str]:
    """Returns the names of values that the loop changes in place (by an index, by `+=` or by a method such as `add_`).
    Each name is in the set twice: alone, and followed by " in place"."""
    names = set()
    for node in ast.walk(loop):
        target: ast.expr | None = None
        if isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            target = node.func.value
        while isinstance(target, (ast.Subscript, ast.Attribute)):
            target = target.value
        if isinstance(target, ast.Name):
            names |= {target.id, target.id + " in place"}
    return names
