"""Finds classes of which a file makes instances only inside modules that it passes to `torch.jit.script`.

TorchScript compiles the source of everything inside such a module and calls no Python, so kernels in it never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_assistant.source.find import parse


@dataclass(frozen=True)
class _Made:
    """One call in a file that makes an instance of the file's class `name`. `inside` is the class whose code contains
    the call ("" for none); `scripted` says whether the instance is passed to `torch.jit.script`."""

    name: str
    inside: str
    scripted: bool


def scripted_above(text: str, class_name: str) -> str:
    """Returns the name of the scripted class that contains the instances of `class_name`, if all that `text` makes are
    inside scripted modules; else "".

    Also "" if `text` makes no instance, since other files may. Raises UsageError if `text` is not valid Python.
    """
    if "script" not in text:
        return ""
    made = _made(parse(text, "the file"))
    return _above(class_name, made, frozenset()) if any(one.scripted for one in made) else ""


def _above(name: str, made: list[_Made], seen: frozenset[str]) -> str:
    matches = [one for one in made if one.name == name and one.inside != name]
    outer = [
        name if one.scripted else _above(one.inside, made, seen | {name}) if one.inside not in {"", *seen} else ""
        for one in matches
    ]
    return outer[0] if all(outer) and outer else ""


def _made(tree: ast.Module) -> list[_Made]:
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    scripted = {id(_innermost(argument)) for argument in _scripted(tree)}
    names = {node.id for node in map(_innermost, _scripted(tree)) if isinstance(node, ast.Name)} - _called(tree)
    made: list[_Made] = []
    for statement in tree.body:
        inside = statement.name if isinstance(statement, ast.ClassDef) else ""
        kept = {id(value) for name, value in _assigned(statement) if name in names}
        made += [
            _Made(node.func.id, inside, id(node) in scripted | kept)
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes
        ]
    return made


def _scripted(tree: ast.AST) -> Iterator[ast.expr]:
    """Yields the first argument of each call of `torch.jit.script`, however the function was imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and _is_script(node.func):
            yield node.args[0]


def _is_script(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr == "script" and ast.unparse(function.value).split(".")[-1] == "jit"
    return isinstance(function, ast.Name) and function.id == "script"


def _innermost(value: ast.expr) -> ast.expr:
    """Returns the first call of a chain of method calls, which makes the object: `Net()` of
    `Net().to(device).eval()`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    return value


def _assigned(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from ((one.id, _innermost(node.value)) for one in node.targets if isinstance(one, ast.Name))


def _called(tree: ast.AST) -> set[str]:
    """Returns the names that are called, except variables to which a scripted module is assigned."""
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return called - {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _is_script(node.value.func)
        for name in [one.id for one in node.targets if isinstance(one, ast.Name)]
    }
