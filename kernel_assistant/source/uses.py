"""Finds the names that a statement uses, and when they must be defined: when the statement runs, when its functions are
called, or only in `__init__`."""

from __future__ import annotations

import symtable
from collections.abc import Iterator
from dataclasses import dataclass

_INIT = "__init__"


@dataclass(frozen=True)
class Uses:
    """The names that a statement uses, each in one of three groups. Those in `now` must be defined when the statement
    runs (bases, decorators, defaults), those in `later` when its functions are called, those in `building` only when an
    `__init__` of its classes is called."""

    now: tuple[str, ...]
    later: tuple[str, ...]
    building: tuple[str, ...]


def uses_of(text: str) -> Uses:
    """Returns the names that one top-level statement needs. Raises SyntaxError if `text` is not Python."""
    names_by_use: dict[str, set[str]] = {"now": set(), "later": set(), "building": set()}
    for when, name in _names(symtable.symtable(text, "statement", "exec"), "now", outermost=True):
        names_by_use[when].add(name)
    now = names_by_use["now"]
    later = names_by_use["later"] - now
    return Uses(*(tuple(sorted(names)) for names in (now, later, names_by_use["building"] - later - now)))


def _names(table: symtable.SymbolTable, when: str, *, outermost: bool = False) -> Iterator[tuple[str, str]]:
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (outermost or symbol.is_global()):
            yield when, symbol.get_name()
    for child in table.get_children():
        yield from _names(child, _when(table, child, when))


def _when(table: symtable.SymbolTable, child: symtable.SymbolTable, when: str) -> str:
    """Returns when the names in the scope `child` of `table` are needed: "now", "later" or "building" (see `Uses`).
    `when` is the answer for `table`. Comprehensions and annotation scopes run together with the code around them."""
    is_function = isinstance(child, symtable.Function) and not child.get_name().endswith(("comp", "genexpr"))
    if when != "now" or not is_function:
        return when
    return "building" if child.get_name() == _INIT and table.get_type() == "class" else "later"
