"""What a row kernel computes, in order: sweeps over the row, and what several of them need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernel_assistant.generator.expr import Expr, Load, Op, Reduce, children
from kernel_assistant.generator.lower import Output
from kernel_assistant.generator.nest import Access, Nest
from kernel_assistant_training.teacher.expressions import ENDS, below, stored

#: What may be held.
_NAMED = (Op, Load)


@dataclass(frozen=True, eq=False)
class Sweep:
    """One run over the row: a reduction, or the store of a result. `of` is what it evaluates everywhere."""

    level: int
    of: Expr
    reduce: Reduce | None = None
    store: tuple[Access, Output] | None = None


def levels(nest: Nest) -> dict[int, int]:
    """How many reductions, one behind the other, an expression waits for."""
    level: dict[int, int] = {}
    for expr in nest.program.exprs:
        behind = max((level[id(child)] for child in children(expr)), default=0)
        level[id(expr)] = behind + isinstance(expr, Reduce)
    return level


def sweeps(nest: Nest, level: dict[int, int]) -> list[Sweep]:
    """Reductions in the order in which they can be had, then stores along the row."""
    found = [
        Sweep(level[id(expr.arg)], expr.arg, reduce=expr) for expr in nest.program.exprs if isinstance(expr, Reduce)
    ]
    found.sort(key=lambda sweep: sweep.level)
    along = set(nest.reduced)
    for access, output in nest.stores:
        if along & set(access.index):
            found.append(Sweep(level[id(output.expr)], stored(output.expr, access.dtype), store=(access, output)))
    return found


def is_row(nest: Nest, expr: Expr) -> bool:
    """A load that differs from row to row, along the row: what is worth holding."""
    if not isinstance(expr, Load) or id(expr) not in nest.varies:
        return False
    access = nest.loads[id(expr)]
    return bool(access.buffer) and (not nest.outer or any(axis in access.index for axis in nest.outer))


def gate(nest: Nest, targets: list[Expr], known: set[int], held: Expr | None) -> Expr | None:
    """The last expression through which all `targets` reach the row (`held`, or any load of a row where nothing is
    held), and which needs no reduction but those in `known`; None where there is none."""
    depth: dict[int, int] = {}
    for expr in sorted(below(targets), key=lambda one: -_depth(one, depth)):
        if id(expr) not in nest.varies or not isinstance(expr, _NAMED) or not _available(expr, known):
            continue
        if _same(nest, expr, held) or not any(_reaches(nest, [expr], held, ())):
            continue
        if not any(_reaches(nest, targets, held, (id(expr),))):
            return expr
    return None


def reaches(nest: Nest, target: Expr, held: Expr) -> bool:
    """Whether `target` needs what is held."""
    return any(_reaches(nest, [target], held, ()))


def _reaches(nest: Nest, roots: Iterable[Expr], held: Expr | None, stop: Iterable[int]) -> Iterable[bool]:
    return (_same(nest, expr, held) if held is not None else is_row(nest, expr) for expr in below(roots, stop))


def _same(nest: Nest, expr: Expr, held: Expr | None) -> bool:
    """Two loads of one place are the same."""
    if isinstance(expr, Load) and isinstance(held, Load):
        return nest.loads[id(expr)] is nest.loads[id(held)]
    return expr is held


def _available(expr: Expr, known: set[int]) -> bool:
    return all(id(one) in known for one in below([expr]) if isinstance(one, Reduce))


def _depth(expr: Expr, seen: dict[int, int]) -> int:
    if id(expr) not in seen:
        inner = () if isinstance(expr, ENDS) else children(expr)
        seen[id(expr)] = 1 + max((_depth(child, seen) for child in inner), default=0)
    return seen[id(expr)]
