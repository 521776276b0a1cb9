"""What hints need to know of one module class: the imported objects to which its names refer, the modules that its
constructor makes, and the methods that its `forward` calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from kernel_assistant.source.find import Index
from kernel_assistant.source.lint.hint import DeviceTraits

#: Decorators and functions that compile. Compiled code does not have the costs of eager mode.
_COMPILED = ("torch.compile", "torch.jit.script", "torch.jit.script_method")
Function = ast.FunctionDef


@dataclass(frozen=True)
class FileContext:
    """Facts on which the hints of a class depend, about its file and about the device. `compiles`: the file calls
    torch.compile; `tf32`: the file enables TF32."""

    names: tuple[tuple[str, str], ...] = ()
    star_of_nn: bool = False
    compiles: bool = False
    tf32: bool = False
    machine: DeviceTraits = field(default_factory=DeviceTraits)


@dataclass(frozen=True)
class ModuleScope:
    """A module class, and the facts about its file on which its hints depend. `node` is the syntax tree of the
    class."""

    node: ast.ClassDef
    around: FileContext

    @cached_property
    def names(self) -> dict[str, str]:
        return {**dict(self.around.names), **Index(self.node).aliases}

    @cached_property
    def compiled(self) -> bool:
        """Whether the class or one of its methods has a decorator that compiles, or the file calls torch.compile
        anywhere."""
        decorated: list[ast.ClassDef | Function] = [self.node]
        decorated += [item for item in self.node.body if isinstance(item, Function)]
        return self.around.compiles or any(
            (self.origin(item.func if isinstance(item, ast.Call) else item) or "") in _COMPILED
            for one in decorated
            for item in one.decorator_list
        )

    @cached_property
    def methods(self) -> tuple[Function, ...]:
        """`forward` and the methods of this class that `forward` calls, directly or indirectly."""
        own = {item.name: item for item in self.node.body if isinstance(item, Function)}
        methods: dict[str, Function] = {}
        waiting = ["forward"]
        while waiting:
            name = waiting.pop()
            if name in own and name not in methods:
                methods[name] = own[name]
                waiting += [
                    node.func.attr
                    for node in ast.walk(own[name])
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_self(node.func.value)
                ]
        return tuple(methods.values())

    @cached_property
    def modules(self) -> dict[str, str]:
        """Maps each attribute `self.x` to the dotted name of the class or function whose result is assigned to it, such
        as `norm` to `torch.nn.LayerNorm`; to "" if there are several."""
        modules: dict[str, str] = {}
        for node in ast.walk(self.node):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                origin = self.origin(node.value.func)
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and is_self(target.value) and origin:
                        same = modules.setdefault(target.attr, origin) == origin
                        modules[target.attr] = origin if same else ""
        return modules

    def origin(self, expression: ast.expr) -> str | None:
        """Returns the dotted name of the imported object to which `expression` refers, such as `torch.nn.Linear`; None
        if it refers to no import."""
        if isinstance(expression, ast.Attribute):
            value = self.origin(expression.value)
            return f"{value}.{expression.attr}" if value else None
        if isinstance(expression, ast.Name):
            known = self.names.get(expression.id)
            starred = self.around.star_of_nn and expression.id[:1].isupper()
            return known or (f"torch.nn.{expression.id}" if starred else None)
        return None

    def submodule(self, call: ast.Call) -> str:
        """Returns the dotted name of the class of the module `self.x` for a call `self.x(...)`, "" if it is unknown."""
        function = call.func
        if isinstance(function, ast.Attribute) and is_self(function.value):
            return self.modules.get(function.attr, "")
        return ""

    def function(self, call: ast.Call) -> str:
        """Returns the name of a called operation without its module: "exp", "gelu" and "exp" for `torch.exp(x)`,
        `F.gelu(x)` and `x.exp()`; "" for other calls."""
        origin = self.origin(call.func) or ""
        if origin.startswith("torch."):
            return origin.rpartition(".")[2]
        if origin or not isinstance(call.func, ast.Attribute) or is_self(call.func.value):
            return ""
        return call.func.attr

    def operand(self, call: ast.Call) -> ast.expr | None:
        """Returns the first operand of a called operation: `x` in `x.exp()` and in `torch.exp(x)`. None if there is
        none."""
        if isinstance(call.func, ast.Attribute) and self.origin(call.func) is None and not is_self(call.func.value):
            return call.func.value
        return call.args[0] if call.args else None


def is_self(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Name) and expression.id == "self"


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yields `node` and its descendants, except those inside functions and classes."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from walk(child)


def statements(function: Function) -> Iterator[ast.stmt]:
    """Yields all statements of a method in order, including those of inner blocks."""
    for statement in function.body:
        for node in walk(statement):
            if isinstance(node, ast.stmt):
                yield node


def blocks(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yields each list of statements that run one after another: `body`, and the body of each `if`, loop, `try` and
    `with` in it (without those of `except` and `case`)."""
    yield body
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if inner:
                yield from blocks(inner)


def dotted(expression: ast.expr) -> str:
    """Returns the text of an expression such as `a.b.c`, "" for any other expression."""
    if isinstance(expression, ast.Attribute):
        value = dotted(expression.value)
        return f"{value}.{expression.attr}" if value else ""
    return expression.id if isinstance(expression, ast.Name) else ""
