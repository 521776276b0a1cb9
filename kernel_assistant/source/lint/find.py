"""Finds the hints of a text: splits it into pieces, applies the rules to pieces with module classes, and removes
suppressed hints."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache

from kernel_assistant.source.find import Index
from kernel_assistant.source.lint.chunks import Summary, parsed_pieces
from kernel_assistant.source.lint.classes import FileContext, ModuleScope
from kernel_assistant.source.lint.hint import DeviceTraits, Hint
from kernel_assistant.source.lint.rules import RULES, Method
from kernel_assistant.source.lint.suppressions import Suppressions
from kernel_assistant.source.pieces import parse_piece

_KEPT = 2048
#: Lines between the classes of successive pieces; more than any piece has.
_APART = 10_000_000


def find_hints(text: str, machine: DeviceTraits | None = None, ignore: Collection[str] = ()) -> list[Hint]:
    """Returns the hints in order of appearance. `ignore` has the codes of hints that a setting turns off. A class
    that is not valid Python has no hints; no exception is raised for it."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    whole = list(parsed_pieces(text))
    around, modules = _surroundings(tuple(part for _, _, part in whole), machine or DeviceTraits())
    silence = Suppressions(text)
    hints: list[Hint] = []
    for (above, piece, _), lines in zip(whole, modules, strict=True):
        if lines:
            inspected = _inspect(piece, lines, around)
            starts = {name: (first + above, line + above) for name, first, line in inspected.starts}
            moved = [replace(hint, line=hint.line + above, end_line=hint.end_line + above) for hint in inspected.hints]
            hints += [hint for hint in moved if not silence.covers(hint, *starts[hint.class_name])]
    return [hint for hint in hints if hint.code not in ignore]


@dataclass(frozen=True)
class _Inspected:
    """The hints of one piece (a top-level class or function). `starts` has for each class (name, line of its first
    decorator, line of its `class` statement)."""

    hints: tuple[Hint, ...]
    starts: tuple[tuple[str, int, int], ...]


@lru_cache(maxsize=_KEPT)
def _inspect(piece: str, lines: frozenset[int], around: FileContext) -> _Inspected:
    """Returns the hints of those module classes in `piece`, a part of a file, that begin at `lines`. Line numbers are
    those in the piece."""
    tree = parse_piece(piece)
    classes = [] if tree is None else [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
    classes = [one for one in classes if one.lineno in lines]
    hints: list[Hint] = []
    for node in classes:
        scope = ModuleScope(node, around)
        methods = [Method(scope, method, first=number == 0) for number, method in enumerate(scope.methods)]
        for method in methods:
            hints += [rule_hint.hint(rule.code, node.name, 0) for rule in RULES for rule_hint in rule.find(method)]
    hints.sort(key=lambda hint: (hint.line, hint.column, hint.code))
    starts = tuple(
        (one.name, min([one.lineno, *(d.lineno for d in one.decorator_list)]), one.lineno) for one in classes
    )
    return _Inspected(tuple(dict.fromkeys(hints)), starts)


@lru_cache(maxsize=64)
def _surroundings(parts: tuple[Summary, ...], machine: DeviceTraits) -> tuple[FileContext, list[frozenset[int]]]:
    """Returns the facts about the whole file, and for each summary in `parts` the lines on which the module classes of
    its piece begin."""
    body: list[ast.stmt] = []
    for number, part in enumerate(parts):
        body += [_lowered(node, number * _APART) if isinstance(node, ast.ClassDef) else node for node in part.skeleton]
    index = Index(ast.Module(body=body, type_ignores=[]))
    around = FileContext(
        names=tuple(sorted(index.aliases.items())),
        star_of_nn=index.star_of_nn,
        compiles=any(part.compiles for part in parts),
        tf32=any(part.tf32 for part in parts),
        machine=machine,
    )
    lines: list[set[int]] = [set() for _ in parts]
    for scoped in index.classes:
        if index.is_module(scoped.node):
            lines[scoped.node.lineno // _APART].add(scoped.node.lineno % _APART)
    return around, [frozenset(each) for each in lines]


def _lowered(node: ast.ClassDef, lines: int) -> ast.ClassDef:
    """Returns a copy of `node` whose line number is increased by `lines`. With it, classes of all pieces of a file keep
    their order in one tree."""
    moved = ast.ClassDef(name=node.name, bases=node.bases, keywords=[], body=node.body, decorator_list=[])
    moved.lineno, moved.col_offset = node.lineno + lines, node.col_offset
    return moved
