"""The interface of a rule, and a method as the rules see it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from kernel_assistant.source.lint.classes import Function, ModuleScope, statements
from kernel_assistant.source.lint.hint import RuleHint
from kernel_assistant.source.lint.tensors import TensorNames, walk_body


@dataclass(frozen=True)
class Method:
    """`forward`, or a method that it calls. `first` is True for exactly one method of a class; rules use it to give a
    hint once for each class."""

    scope: ModuleScope
    node: Function
    first: bool

    @cached_property
    def tensors(self) -> TensorNames:
        return TensorNames(self.scope, self.node)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the body, except those inside functions and classes defined there."""
        return walk_body(self.node)

    @cached_property
    def loops(self) -> list[ast.For | ast.While]:
        return [one for one in statements(self.node) if isinstance(one, (ast.For, ast.While))]

    @cached_property
    def tensor_loops(self) -> list[ast.For]:
        """Loops over a dimension of a tensor, by index or element by element."""
        return [one for one in self.loops if isinstance(one, ast.For) and self.over_dimension(one)]

    def over_dimension(self, loop: ast.For) -> bool:
        """Whether the loop runs over one dimension of a tensor, so that each iteration takes its next element or
        slice."""
        over, names = loop.iter, {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "enumerate" and over.args:
            over = over.args[0]
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range":
            in_parts = len(over.args) == 3 and not isinstance(over.args[2], (ast.Constant, ast.UnaryOp))
            sized = any(self.is_size(one) for one in over.args) and not in_parts
            return sized and _subscripts_with(loop, names, self.tensors)
        if isinstance(over, ast.Call) and self.scope.function(over) == "unbind":
            return self.tensors.is_tensor(self.scope.operand(over))
        return self.tensors.is_large(over)

    def is_size(self, expression: ast.expr) -> bool:
        """Whether an expression contains a size of a tensor: `x.shape[1]`, `x.size(1)`, `len(x)`, or a variable with
        such a size."""
        return any(self._gives_size(node) for node in ast.walk(expression))

    def _gives_size(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.sizes
            case ast.Attribute(value=value, attr="shape" | "size"):
                return self.tensors.is_tensor(value)
            case ast.Call(func=ast.Name(id="len"), args=[one]):
                return self.tensors.is_large(one)
            case _:
                return False

    @cached_property
    def sizes(self) -> frozenset[str]:
        """Names that hold a size of a tensor, assigned by `batch, length, _ = x.shape`, `n = x.size(1)` and similar."""
        names = set()
        for statement in statements(self.node):
            if isinstance(statement, ast.Assign) and any(
                isinstance(node, ast.Attribute)
                and node.attr in ("shape", "size")
                and self.tensors.is_tensor(node.value)
                for node in _top(statement.value)
            ):
                names |= {node.id for one in statement.targets for node in ast.walk(one) if isinstance(node, ast.Name)}
        return frozenset(name for name in names if not self.tensors.is_tensor(ast.Name(id=name)))


@dataclass(frozen=True)
class Rule:
    code: str
    name: str
    find: Callable[[Method], Iterator[RuleHint]]


def _top(value: ast.expr) -> list[ast.expr]:
    """Returns the parts of a value that may be sizes: the items of a tuple, both sides of a binary operation, the value
    that a subscript indexes, the method that a call calls, or the value itself."""
    match value:
        case ast.Tuple(elts=elts):
            return [one for item in elts for one in _top(item)]
        case ast.BinOp(left=left, right=right):
            return [*_top(left), *_top(right)]
        case ast.Subscript(value=inner):
            return _top(inner)
        case ast.Call(func=ast.Attribute() as function):
            return [function]
        case _:
            return [value]


def _subscripts_with(loop: ast.For, names: set[str], tensors: TensorNames) -> bool:
    """Whether the body of the loop indexes a tensor with one of the loop variables `names`."""
    return any(
        isinstance(node, ast.Subscript)
        and tensors.is_tensor(node.value)
        and names & {inner.id for inner in ast.walk(node.slice) if isinstance(inner, ast.Name)}
        for statement in loop.body
        for node in ast.walk(statement)
    )
