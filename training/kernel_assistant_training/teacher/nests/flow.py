"""Plans a row kernel: its passes over the row in order, and the values that several passes need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernel_assistant.generator.ir.expr import Expr, Load, Op, Reduce, children
from kernel_assistant.generator.loops.nest import Access, LoopNest
from kernel_assistant.generator.lower.lower import Output
from kernel_assistant_training.teacher.text.expressions import ENDS, below, stored

#: What may be held.
_NAMED = (Op, Load)


@dataclass(frozen=True, eq=False)
class Sweep:
    """One pass over the row: a reduction, or the store of a result. `of` is the expression that it evaluates for each
    element; `level` says how many reductions have to be known before it."""

    level: int
    of: Expr
    reduce: Reduce | None = None
    store: tuple[Access, Output] | None = None


def levels(nest: LoopNest) -> dict[int, int]:
    """For each expression (by id) the length of the longest chain of reductions that it needs."""
    level: dict[int, int] = {}
    for expr in nest.program.exprs:
        behind = max((level[id(child)] for child in children(expr)), default=0)
        level[id(expr)] = behind + isinstance(expr, Reduce)
    return level


def sweeps(nest: LoopNest, level: dict[int, int]) -> list[Sweep]:
    """The reductions, each after those that it needs, then the stores along the row."""
    found = [
        Sweep(level[id(expr.arg)], expr.arg, reduce=expr) for expr in nest.program.exprs if isinstance(expr, Reduce)
    ]
    found.sort(key=lambda sweep: sweep.level)
    along = set(nest.reduced)
    for access, output in nest.stores:
        if along & set(access.index):
            found.append(Sweep(level[id(output.expr)], stored(output.expr, access.dtype), store=(access, output)))
    return found


def is_row(nest: LoopNest, expr: Expr) -> bool:
    """Whether the expression loads elements along the row that differ from row to row; only such a row is worth
    holding."""
    if not isinstance(expr, Load) or id(expr) not in nest.varies:
        return False
    access = nest.loads[id(expr)]
    return bool(access.buffer) and (not nest.outer or any(axis in access.index for axis in nest.outer))


def gate(nest: LoopNest, targets: list[Expr], known: set[int], held: Expr | None) -> Expr | None:
    """The last expression through which all `targets` depend on the row, and which needs no reductions but those in
    `known`. None if there is none. The row is `held`; if nothing is held, any load of a row."""
    depth: dict[int, int] = {}
    for expr in sorted(below(targets), key=lambda one: -_depth(one, depth)):
        if id(expr) not in nest.varies or not isinstance(expr, _NAMED) or not _available(expr, known):
            continue
        if _same(nest, expr, held) or not any(_reaches(nest, [expr], held, ())):
            continue
        if not any(_reaches(nest, targets, held, (id(expr),))):
            return expr
    return None


def reaches(nest: LoopNest, target: Expr, held: Expr) -> bool:
    """Whether `target` depends on what is held."""
    return any(_reaches(nest, [target], held, ()))


def _reaches(nest: LoopNest, roots: Iterable[Expr], held: Expr | None, stop: Iterable[int]) -> Iterable[bool]:
    return (_same(nest, expr, held) if held is not None else is_row(nest, expr) for expr in below(roots, stop))


def _same(nest: LoopNest, expr: Expr, held: Expr | None) -> bool:
    """Whether two expressions are the same object; two loads are also the same if they read the same element."""
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
