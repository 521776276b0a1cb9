"""Finds the module classes of a text while it is typed, even if parts of it are not valid Python.

A text is split into its top-level classes and functions, and the result for each piece is cached, so that after a
keystroke only one piece is parsed. A piece that is not valid Python is split further into statements. Statements that
are not valid Python are read line by line (`half_typed.py`).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from kernel_assistant.source.find import ModuleClass, modules_of
from kernel_assistant.source.half_typed import by_lines, is_open_string, statements
from kernel_assistant.source.pieces import pieces
from kernel_assistant.source.slim import LONG, slim_body

#: The number of cached pieces, which are small without their functions.
_KEPT = 4096
#: At most this many pieces are joined.
_MOST_JOINED = 4
_Node = TypeVar("_Node", ast.stmt, ast.expr)


@dataclass(frozen=True)
class SyntaxFault:
    """A syntax error: lines `first` to `last` (1-based, inclusive) are not valid Python; the parser stopped at `line`
    with `message`."""

    first: int
    last: int
    line: int
    message: str


@dataclass(frozen=True)
class Outline:
    """The module classes with a `forward`, in order, and the parts that are not valid Python."""

    classes: tuple[ModuleClass, ...] = ()
    faults: tuple[SyntaxFault, ...] = ()

    def fault_of(self, one: ModuleClass) -> SyntaxFault | None:
        """Returns the syntax error inside a class, None if there is none."""
        return next((fault for fault in self.faults if fault.first <= one.end_line and one.line <= fault.last), None)


def outline(text: str) -> Outline:
    """Returns the module classes and the syntax errors of any text; no exception is raised for invalid Python. Takes
    seconds for a new text of 50,000 lines, a tenth of a second for an edited one, so do not call it in an event
    loop."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    read = list(_read(text))
    faults = tuple(_moved(fault, above) for above, part in read for fault in part.faults)
    if faults and len(text) <= LONG and (tree := _parsed(text)[0]) is not None:
        return Outline(_with_forward(tree))  # a piece was cut inside a statement
    body = [_lowered(node, above) for above, part in read for node in part.body]
    return Outline(_with_forward(ast.Module(body=body, type_ignores=[])), faults)


@dataclass(frozen=True)
class _Part:
    """What was read from one piece of a text (a top-level class or function): its statements and syntax errors. Line
    numbers are those in the piece."""

    body: tuple[ast.stmt, ...]
    faults: tuple[SyntaxFault, ...] = ()


def _with_forward(tree: ast.Module) -> tuple[ModuleClass, ...]:
    return tuple(module for module in modules_of(tree) if module.has_forward)


def _read(text: str) -> Iterator[tuple[int, _Part]]:
    """Yields (number of lines above, statements and errors) of each piece. Pieces are joined again if the text was
    split inside a string or a bracket."""
    cut = list(pieces(text))
    number = 0
    while number < len(cut):
        above, piece = cut[number]
        part, taken = _whole(piece), 1
        if part is None:
            part, taken = _joined([one for _, one in cut[number:]])
        yield above, part
        number += taken


def _joined(cut: list[str]) -> tuple[_Part, int]:
    """Joins the first of the pieces `cut` with as many of the following ones as make it valid Python. Returns the
    result and the number of joined pieces. If no number of pieces is valid, returns the first piece alone and 1."""
    for end in _ends(cut):
        if (part := _whole("".join(cut[:end]))) is not None:
            return part, end
    return _torn(cut[0]), 1


def _ends(cut: list[str]) -> Iterator[int]:
    if is_open_string(cut[0]):
        # The string ends in the next piece with an odd number of triple quotes.
        closing = next((position for position, one in enumerate(cut[1:], 1) if is_open_string(one)), None)
        if closing is not None:
            yield closing + 1
    else:
        yield from range(2, min(_MOST_JOINED, len(cut)) + 1)


@lru_cache(maxsize=_KEPT)
def _whole(piece: str) -> _Part | None:
    """Parses a piece as a whole. Returns None if it is not valid Python."""
    tree, _ = _parsed(piece)
    return None if tree is None else _Part(tuple(slim_body(tree.body)))


@lru_cache(maxsize=64)
def _torn(piece: str) -> _Part:
    """Reads a piece that is not valid Python statement by statement, and the invalid statements line by line."""
    body: list[ast.stmt] = []
    faults = []
    for above, statement in statements(piece):
        tree, fault = _parsed(statement)
        nodes = slim_body(tree.body) if tree is not None else by_lines(statement)
        body += [_lowered(node, above) for node in nodes]
        if fault is not None:
            faults.append(_moved(fault, above))
    return _Part(tuple(body), tuple(faults))


def _parsed(text: str) -> tuple[ast.Module | None, SyntaxFault | None]:
    last = text.rstrip().count("\n") + 1
    try:
        return ast.parse(text), None
    except SyntaxError as error:
        return None, SyntaxFault(1, last, min(error.lineno or 1, last), error.msg)
    except (ValueError, RecursionError, MemoryError) as error:
        return None, SyntaxFault(1, last, 1, str(error) or type(error).__name__)


def _moved(fault: SyntaxFault, lines: int) -> SyntaxFault:
    return SyntaxFault(fault.first + lines, fault.last + lines, fault.line + lines, fault.message)


def _lowered(node: ast.stmt, lines: int) -> ast.stmt:
    """Returns a copy of `node` whose line numbers are increased by `lines`. The copy shares all expressions except
    decorators with `node`, since their line numbers are not used."""
    if not lines:
        return node
    new = _shifted(node, lines)
    for name, value in ast.iter_fields(node):
        if name == "decorator_list":
            setattr(new, name, [_shifted(one, lines) for one in value])
        elif isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            setattr(new, name, [_lowered(one, lines) for one in value])
        elif isinstance(value, list) and value and isinstance(value[0], (ast.ExceptHandler, ast.match_case)):
            setattr(new, name, [_with_body(one, lines) for one in value])
    return new


def _with_body(part: ast.ExceptHandler | ast.match_case, lines: int) -> ast.AST:
    new = copy.copy(part)
    new.body = [_lowered(one, lines) for one in part.body]
    return new


def _shifted(node: _Node, lines: int) -> _Node:
    new = copy.copy(node)
    new.lineno = node.lineno + lines
    new.end_lineno = (node.end_lineno or node.lineno) + lines
    return new
