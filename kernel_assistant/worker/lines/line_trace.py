"""Reports which line of the user's class runs, by `sys.settrace` on the frames of that class."""

from __future__ import annotations

import ast
import inspect
import sys
from types import CodeType, FrameType
from typing import Any, Protocol

#: A line as it is reported: name of the function, first and last line of the statement.
Line = tuple[str, int, int]


class Watcher(Protocol):
    """Gets a call of `begin` when a statement begins and of `end` when it has ended. A statement that calls other
    methods of the class encloses their statements."""

    def begin(self, line: Line) -> None: ...

    def end(self, line: Line) -> None: ...


class LineTrace:
    """A context manager: within the block, `watcher` is called at the beginning and end of every statement of the
    functions in `codes` that this thread runs."""

    def __init__(self, codes: dict[CodeType, dict[int, Line]], watcher: Watcher) -> None:
        self._codes, self._watcher = codes, watcher
        self._open: dict[int, Line] = {}

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._called)

    def __exit__(self, *exception: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._inside if frame.f_code in self._codes else None

    def _inside(self, frame: FrameType, event: str, argument: Any) -> Any:
        current = self._open.get(id(frame))
        if event == "line":
            line = self._codes[frame.f_code].get(frame.f_lineno)
            if line == current:
                return self._inside  # another line of the same statement
            if current is not None:
                self._watcher.end(current)
                del self._open[id(frame)]
            if line is not None:
                self._open[id(frame)] = line
                self._watcher.begin(line)
        elif event == "return" and current is not None:
            # This is also the event when an exception leaves a frame.
            del self._open[id(frame)]
            self._watcher.end(current)
        return self._inside


def codes_of(cls: type, path: str, content: str) -> dict[CodeType, dict[int, Line]]:
    """Returns the functions of `cls` and its bases that are defined in the file `path` with the text `content`: code
    object → {line number: statement on that line}."""
    tree = ast.parse(content)
    functions = {
        (node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])): node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
    codes: dict[CodeType, dict[int, Line]] = {}
    for base in cls.__mro__:
        for value in vars(base).values():
            value = getattr(value, "__func__", getattr(value, "fget", value))
            code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
            if isinstance(code, CodeType) and code.co_filename == path:
                node = functions.get((code.co_name, code.co_firstlineno))
                if node is not None:
                    codes[code] = _statements(node)
    return codes


def _statements(function: ast.FunctionDef) -> dict[int, Line]:
    """Returns line number → the innermost statement on that line. A statement with a body, such as `if`, counts only
    for the lines of its header."""
    lines: dict[int, Line] = {}
    for node in ast.walk(function):  # outer ones first
        if node is function or not isinstance(node, ast.stmt):
            continue
        inner = getattr(node, "body", None)
        last = node.end_lineno or node.lineno
        if isinstance(inner, list) and inner:
            last = max(node.lineno, min(one.lineno for one in inner) - 1)
            last = min(last, _head_end(node))
        for number in range(node.lineno, last + 1):
            lines[number] = (function.name, node.lineno, last)
    return lines


def _head_end(node: ast.stmt) -> int:
    parts = [getattr(node, name, None) for name in ("test", "iter", "target", "subject")]
    parts += [item.context_expr for item in getattr(node, "items", [])]
    return max([node.lineno, *(part.end_lineno or 0 for part in parts if isinstance(part, ast.expr))])
