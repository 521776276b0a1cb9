"""Finds the text of classes and functions that were typed into a live session: in a notebook's cell, or at a prompt
that keeps the text."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from kernel_assistant.source.same_code import changed_members, codes_in, futures_of, is_same, plain_function

MAIN = "__main__"
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Definition:
    """The text of a class or function. `futures` are the `__future__` flags that it was compiled with; `changed` names
    the members of a class that have been replaced since and so differ from the text."""

    text: str
    futures: int = 0
    changed: tuple[str, ...] = ()


def main_names() -> dict[str, Any]:
    """Returns the names that the session has defined, with their values."""
    return vars(sys.modules[MAIN])


def is_of_session(cls: type) -> bool:
    """Whether a class was typed into the session, as opposed to loaded from a file."""
    if cls.__module__ != MAIN:
        return False
    functions = _own_functions(cls)
    in_file = not functions or os.path.isfile(functions[0].__code__.co_filename)
    return "__file__" not in main_names() or not in_file


def where() -> str:
    """Describes the session in words, such as "an IPython session"; names the path of a notebook if its front end
    provides the path."""
    notebook = main_names().get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME")
    if notebook:
        return f"the notebook {notebook}"
    return "an IPython session" if hasattr(builtins, "__IPYTHON__") else "a Python session"


def cells() -> list[str]:
    """Returns everything that was typed in and that Python still has (in `linecache`), newest first."""
    kept = [entry[2] for entry in linecache.cache.values() if len(entry) == 4 and entry[1] is None]
    return ["".join(lines) for lines in reversed(kept)]


def class_definition(cls: type) -> Definition | None:
    """Returns the text that defines a class; None if the session does not keep it."""
    for text, line, futures in _texts_of(cls):
        nodes = [node for node in _statements(text) if isinstance(node, ast.ClassDef) and node.name == cls.__name__]
        nodes = [node for node in nodes if line is None or _covers(node, line)]
        if nodes:
            cut = _cut(text, nodes[-1])
            return Definition(cut, futures, tuple(changed_members(cls, nodes[-1], codes_in(cut, futures))))
    return None


def function_definition(name: str, value: Any) -> Definition | None:
    """Returns the text that defines a function, or a lambda assigned to `name`; None if the text is not kept or the
    function is a closure."""
    function = plain_function(value)
    if function is None or function.__module__ != MAIN or function.__code__.co_freevars:
        return None
    text, line, futures = _text_of(function) or "", function.__code__.co_firstlineno, futures_of(function)
    for node in _statements(text):
        if _binds(node, name) and _covers(node, line):
            cut = _cut(text, node)
            if any(is_same(function.__code__, code) for code in codes_in(cut, futures)):
                return Definition(cut, futures)
    return None


def _own_functions(cls: type) -> list[FunctionType]:
    functions = [plain_function(value) for value in vars(cls).values()]
    own = f"{cls.__qualname__}."
    return [one for one in functions if one is not None and one.__code__.co_qualname.startswith(own)]


def _texts_of(cls: type) -> Iterator[tuple[str, int | None, int]]:
    """Yields texts that may define a class, each with a line number inside the class and the `__future__` flags. For a
    class without functions, yields all texts that are kept, and None as line number."""
    functions = _own_functions(cls)
    for function in functions:
        text = _text_of(function)
        if text is not None:
            yield text, function.__code__.co_firstlineno, futures_of(function)
    if not functions:
        yield from ((text, None, 0) for text in cells())


def _text_of(function: FunctionType) -> str | None:
    try:
        return "".join(inspect.findsource(function)[0])
    except (OSError, TypeError, IndexError):
        return None


def _statements(text: str) -> Iterator[ast.stmt]:
    """Yields the statements outside functions and classes, including those in `if`, `try` and `with`; nothing for a
    text with a syntax error."""
    try:
        waiting: list[ast.AST] = [ast.parse(text)]
    except (SyntaxError, ValueError):
        return
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.stmt):
                yield node
            if not isinstance(node, (*_DEFINITIONS, ast.expr)):
                waiting.append(node)


def _binds(node: ast.stmt, name: str) -> bool:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return node.name == name
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    return False


def _covers(node: ast.stmt, line: int) -> bool:
    return _first_line(node) <= line <= (node.end_lineno or 0)


def _first_line(node: ast.stmt) -> int:
    """Returns the number of the line with the first decorator, or with the statement if it has none."""
    decorators = node.decorator_list if isinstance(node, _DEFINITIONS) else []
    return min([node.lineno, *(one.lineno for one in decorators)])


def _cut(text: str, node: ast.stmt) -> str:
    """Returns the lines of one statement, decorators included. If it shares a line with other statements, returns text
    made from its syntax tree."""
    lines = "".join(text.splitlines(keepends=True)[_first_line(node) - 1 : node.end_lineno]).rstrip("\n") + "\n"
    try:
        alone = ast.parse(lines).body
    except SyntaxError:
        alone = []
    same = len(alone) == 1 and ast.dump(alone[0]) == ast.dump(node)
    return lines if same else ast.unparse(node) + "\n"
