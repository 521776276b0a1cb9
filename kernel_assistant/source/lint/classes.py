"""One module class: its origin of names, the modules that its constructor makes, and the methods that forward runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from kernel_assistant.source.find import Index
from kernel_assistant.source.lint.hint import Machine

#: What a decorator or a call hands to a compiler of PyTorch's: eager mode's costs are not paid there.
_COMPILED = ("torch.compile", "torch.jit.script", "torch.jit.script_method")
Function = ast.FunctionDef


@dataclass(frozen=True)
class Surroundings:
    """What of the file around a class its hints depend on. `compiles`: the file calls torch.compile; `tf32`: turns
    TF32 on."""

    names: tuple[tuple[str, str], ...] = ()
    star_of_nn: bool = False
    compiles: bool = False
    tf32: bool = False
    machine: Machine = field(default_factory=Machine)


@dataclass(frozen=True)
class ModuleScope:
    """`node` is the class; everything is found from it and its surroundings."""

    node: ast.ClassDef
    around: Surroundings

    @cached_property
    def names(self) -> dict[str, str]:
        return {**dict(self.around.names), **Index(self.node).aliases}

    @cached_property
    def compiled(self) -> bool:
        """Whether the class says itself that it is compiled, or the file compiles something."""
        decorated: list[ast.ClassDef | Function] = [self.node]
        decorated += [item for item in self.node.body if isinstance(item, Function)]
        return self.around.compiles or any(
            (self.origin(item.func if isinstance(item, ast.Call) else item) or "") in _COMPILED
            for one in decorated
            for item in one.decorator_list
        )

    @cached_property
    def methods(self) -> tuple[Function, ...]:
        """`forward` and the methods of the class that it calls, directly or through others."""
        own = {item.name: item for item in self.node.body if isinstance(item, Function)}
        found: dict[str, Function] = {}
        waiting = ["forward"]
        while waiting:
            name = waiting.pop()
            if name in own and name not in found:
                found[name] = own[name]
                waiting += [
                    node.func.attr
                    for node in ast.walk(own[name])
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_self(node.func.value)
                ]
        return tuple(found.values())

    @cached_property
    def modules(self) -> dict[str, str]:
        """Attribute → dotted name of what the constructor calls to make it, e.g. `norm` → `torch.nn.LayerNorm`."""
        found: dict[str, str] = {}
        for node in ast.walk(self.node):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                origin = self.origin(node.value.func)
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and is_self(target.value) and origin:
                        same = found.setdefault(target.attr, origin) == origin
                        found[target.attr] = origin if same else ""
        return found

    def origin(self, expression: ast.expr) -> str | None:
        """Dotted name that `expression` was imported as; None for what was not imported."""
        if isinstance(expression, ast.Attribute):
            value = self.origin(expression.value)
            return f"{value}.{expression.attr}" if value else None
        if isinstance(expression, ast.Name):
            known = self.names.get(expression.id)
            starred = self.around.star_of_nn and expression.id[:1].isupper()
            return known or (f"torch.nn.{expression.id}" if starred else None)
        return None

    def submodule(self, call: ast.Call) -> str:
        """Dotted name of the module that `self.x(...)` calls, "" where that is not known."""
        function = call.func
        if isinstance(function, ast.Attribute) and is_self(function.value):
            return self.modules.get(function.attr, "")
        return ""

    def function(self, call: ast.Call) -> str:
        """Name of the operation that a call is, without where it is from: `torch.exp(x)`, `F.gelu(x)` and `x.exp()`
        give "exp", "gelu" and "exp"; a call of something else gives ""."""
        origin = self.origin(call.func) or ""
        if origin.startswith("torch."):
            return origin.rpartition(".")[2]
        if origin or not isinstance(call.func, ast.Attribute) or is_self(call.func.value):
            return ""
        return call.func.attr

    def operand(self, call: ast.Call) -> ast.expr | None:
        """What the operation is applied to: the object of a method, the first argument of a function."""
        if isinstance(call.func, ast.Attribute) and self.origin(call.func) is None and not is_self(call.func.value):
            return call.func.value
        return call.args[0] if call.args else None


def is_self(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Name) and expression.id == "self"


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and what is inside, but for functions and classes defined there."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from walk(child)


def statements(function: Function) -> Iterator[ast.stmt]:
    """All statements of a method in order, those of inner blocks too."""
    for statement in function.body:
        for node in walk(statement):
            if isinstance(node, ast.stmt):
                yield node


def blocks(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Statements that run one after another: `body`, and those of each inner block."""
    yield body
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if inner:
                yield from blocks(inner)


def dotted(expression: ast.expr) -> str:
    """`a.b.c` as text, "" for anything else."""
    if isinstance(expression, ast.Attribute):
        value = dotted(expression.value)
        return f"{value}.{expression.attr}" if value else ""
    return expression.id if isinstance(expression, ast.Name) else ""
