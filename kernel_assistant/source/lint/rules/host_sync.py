"""The rule KA005: `forward` waits for the device, because Python needs the value of a tensor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_assistant.source.lint.hint import RuleHint
from kernel_assistant.source.lint.rules.base import Method

CODE = "KA005"
NAME = "host synchronisation in forward"
_VALUES = frozenset("tolist cpu numpy".split())
#: Operations whose result size depends on values.
_DEPENDING = frozenset("nonzero argwhere masked_select unique unique_consecutive bincount".split())
_WHOLE = frozenset("equal allclose is_nonzero".split())
_CASTS = ("bool", "int", "float")
#: Code under a condition with such a name does not run in normal use.
_RARE = re.compile(r"debug|verbose|\blog|trace|check|assert|profil", re.IGNORECASE)
_WAIT = "; the host waits for the device here, and torch.compile breaks its graph"


def find(method: Method) -> Iterator[RuleHint]:
    rare = _rarely_run(method)
    for node in method.nodes:
        if id(node) in rare:
            continue
        what = _by_call(method, node) if isinstance(node, ast.Call) else ""
        if what:
            assert isinstance(node, ast.Call)
            yield RuleHint(node, what + _WAIT)
        elif isinstance(node, ast.Subscript) and _by_mask(method, node):
            yield RuleHint(node, "indexing with a mask gives a result whose size depends on values" + _WAIT)
        for test in _tests(node):
            if method.tensors.is_tensor(test):
                yield RuleHint(test, "a condition on a tensor needs its value" + _WAIT)


def _by_call(method: Method, call: ast.Call) -> str:
    tensors, scope = method.tensors, method.scope
    if isinstance(call.func, ast.Name):
        if call.func.id == "print" and any(map(tensors.is_tensor, _printed(call))):
            return "printing a tensor needs its values"
        if call.func.id in _CASTS and call.args and tensors.is_tensor(call.args[0]):
            return f"{call.func.id}() of a tensor needs its value"
    name, operand = scope.function(call), scope.operand(call)
    if scope.origin(call.func) == "torch.cuda.synchronize":
        return "torch.cuda.synchronize() waits for everything"
    if name == "item" and not call.args and isinstance(call.func, ast.Attribute):
        return ".item() needs the value" if not _is_plain(call.func.value) else ""
    if not tensors.is_tensor(operand):
        return ""
    if name in _VALUES:
        return f".{name}() copies to the host"
    if name == "to" and any(_says_cpu(value) for value in [*call.args, *(item.value for item in call.keywords)]):
        return '.to("cpu") copies to the host'
    if name in _DEPENDING and not any(item.arg in ("size", "minlength") for item in call.keywords):
        return f"{name}() gives a result whose size depends on values"
    if name == "where" and len(call.args) == 1 and not call.keywords and scope.origin(call.func) == "torch.where":
        return "where() with a condition alone gives a result whose size depends on values"
    return f"{name}() needs all values" if name in _WHOLE else ""


def _tests(node: ast.AST) -> list[ast.expr]:
    """Returns the expressions in `node` that Python converts to bool."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
            return [] if isinstance(test, (ast.BoolOp, ast.UnaryOp)) else [test]
        case ast.BoolOp(values=values):
            return [] if any(isinstance(one, ast.Constant) for one in values) else values
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [operand]
        case ast.Call(func=ast.Name(id="any" | "all"), args=[one]):
            return [one] if not isinstance(one, ast.GeneratorExp) else []
        case _:
            return []


def _by_mask(method: Method, node: ast.Subscript) -> bool:
    """Whether a subscript reads with a mask, as in `x[x > 0]`. The assignment `x[mask] = 0` does not wait for the
    device."""
    if not isinstance(node.ctx, ast.Load) or not method.tensors.is_tensor(node.value):
        return False
    index = node.slice.operand if isinstance(node.slice, ast.UnaryOp) else node.slice
    return isinstance(index, ast.Compare) and method.tensors.is_tensor(index)


def _rarely_run(method: Method) -> set[int]:
    return {
        id(inner)
        for node in method.nodes
        if isinstance(node, ast.If) and _RARE.search(ast.unparse(node.test))
        for statement in node.body
        for inner in ast.walk(statement)
    }


def _printed(call: ast.Call) -> Iterator[ast.expr]:
    for argument in call.args:
        if isinstance(argument, ast.JoinedStr):
            yield from (part.value for part in argument.values if isinstance(part, ast.FormattedValue))
        else:
            yield argument


def _is_plain(expression: ast.expr) -> bool:
    """Whether a value is on the host because NumPy or `math` made it."""
    root = expression
    while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
        root = root.func if isinstance(root, ast.Call) else root.value
    return isinstance(root, ast.Name) and root.id in ("np", "numpy", "math")


def _says_cpu(value: ast.expr) -> bool:
    if isinstance(value, ast.Call) and value.args:
        value = value.args[0]
    return isinstance(value, ast.Constant) and value.value == "cpu"
