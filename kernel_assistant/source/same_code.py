"""Compares a function of the running program with the text that should define it: the function may have been replaced,
and the text may have been edited, since the text ran."""

from __future__ import annotations
import __future__

import ast
import contextlib
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, tuple, list, dict)
_FUTURES: int = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


def futures_of(function: FunctionType) -> int:
    """Returns the compiler flags of the `from __future__` imports in the text from which `function` was compiled."""
    return function.__code__.co_flags & _FUTURES


def codes_in(text: str, futures: int = 0) -> list[CodeType]:
    """Returns the code objects of the functions and classes of `text`, including nested ones. Raises SyntaxError."""
    return list(_inside(compile(text, "<text>", "exec", flags=futures, dont_inherit=True)))


def is_same(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects compute the same; file names and line numbers are ignored."""
    parts = [(code.co_code, code.co_names, code.co_varnames, code.co_freevars) for code in (one, other)]
    if parts[0] != parts[1] or len(one.co_consts) != len(other.co_consts):
        return False
    return all(map(_is_same_constant, one.co_consts, other.co_consts))


def plain_function(value: Any) -> FunctionType | None:
    """Returns the function behind a property, a method or decorators that set `__wrapped__`; None if there is none."""
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None


def changed_members(cls: type, node: ast.ClassDef, codes: list[CodeType]) -> list[str]:
    """Returns the names of methods and plain values of `cls` that were replaced or added after its text ran.

    `node` is the class in the text, `codes` are the code objects of the text. Results of expressions and of library
    decorators without `__wrapped__` cannot be compared; they are considered unchanged.
    """
    written = {one.name: one for one in node.body if isinstance(one, _FUNCTIONS)}
    names = dict.fromkeys((*written, *(name for name in vars(cls) if not name.startswith("__"))))
    bound = _bound(node)
    methods = [name for name in names if name not in bound and not _is_written(cls, name, written.get(name), codes)]
    return methods + [name for name, value in _literals(node) if _is_other(vars(cls).get(name, value), value)]


def _is_other(live: object, written: object) -> bool:
    """Whether a value of the class differs from the value in the text. False if the class converted it, for example
    to an enum member or a dataclass field."""
    return type(live) in _PLAIN and repr(live) != repr(written)


def _is_written(cls: type, name: str, node: _Function | None, codes: list[CodeType]) -> bool:
    function = plain_function(vars(cls).get(name))
    if function is None:
        return node is None or bool(node.decorator_list)
    if node is not None and any(is_same(function.__code__, code) for code in codes):
        return True
    elsewhere = function.__module__ != cls.__module__ or "<locals>" in function.__qualname__
    return elsewhere and (node is None or bool(node.decorator_list))


def _bound(node: ast.ClassDef) -> set[str]:
    """Returns the names that the class body defines in other ways than by methods: by assignments, inner classes, and
    definitions in `if` and `try`."""
    others = [one for one in node.body if not isinstance(one, _FUNCTIONS)]
    inside = [one for statement in others for one in ast.walk(statement)]
    names = {one.id for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return names | {one.name for one in inside if isinstance(one, (*_FUNCTIONS, ast.ClassDef))}


def _literals(node: ast.ClassDef) -> Iterator[tuple[str, object]]:
    """Yields (name, value) for each name to which the class body assigns a literal."""
    for one in node.body:
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and getattr(one, "value", None) is not None:
            if targets[0].id.startswith("__"):
                continue
            with contextlib.suppress(ValueError, TypeError, SyntaxError):
                yield targets[0].id, ast.literal_eval(one.value)  # type: ignore[attr-defined]


def _is_same_constant(one: object, other: object) -> bool:
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        return is_same(one, other)
    return type(one) is type(other) and (repr(one) == repr(other) or (isinstance(one, frozenset) and one == other))


def _inside(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)
