"""Transposition by square tiles: the result is the input with two groups of dimensions exchanged."""

from __future__ import annotations

from kernel_assistant.generator.ir.sizes import Size
from kernel_assistant_training.teacher.moving.forms import KernelResult, has_choice, written
from kernel_assistant_training.teacher.moving.frame import is_home, lambda_text, parameters
from kernel_assistant_training.teacher.text.answer import Pieces
from kernel_assistant_training.teacher.text.terms import Load, loads

#: Narrower matrices are not transposed by tiles.
NARROW = 16


def tiles(job: KernelResult) -> list[Pieces]:
    found = _turned(job)
    if found is None:
        return []
    load, more, batch, rows, cols = found
    named, prefix = job.named, job.named.prefix
    names = parameters([load, *more])
    function = lambda_text(job.term, [(one.ctype, names[id(one)]) for one in (load, *more)], names)
    operands = ", ".join([function, job.out, *(prefix + one.buffer for one in (load, *more))])
    sizes = f"{named.product(rows)}, {named.product(cols)}"
    if not job.cuda:
        body = [f"ka::transpose({named.product(batch)}, {sizes}, {operands});"]
        return [written(job, "", "", "ka/transpose.h", body)]
    above = [named.product(batch, "")] if batch else []
    across = [f"cdiv({named.product(part, '')},64)" for part in (rows, cols)]
    body = [f"ka::transpose<T>({sizes}, {operands});"]
    geometry = f"grid={'*'.join([*above, *across])} block=T"
    return [written(job, f"T={threads}", geometry, "ka/transpose.cuh", body) for threads in (256, 512, 128)]


def _turned(job: KernelResult) -> tuple[Load, list[Load], list[Size], list[Size], list[Size]] | None:
    """The load that is transposed, and the loads that lie in memory as the result does; the sizes of the batch, of the
    rows and of the columns."""
    every = loads(job.term)
    away = [load for load in every if not is_home(load, job.loops, job.named)]
    if len(away) != 1 or has_choice(job.term):
        return None
    order = [place.text for place, size in zip(away[0].at, away[0].sizes, strict=True) if size != "1"]
    letters, size_of = list(job.loops.letters), dict(zip(job.loops.letters, job.loops.sizes, strict=True))
    if sorted(order) != letters or [job.named.size(size_of[one]) for one in order] != [
        size for size in away[0].sizes if size != "1"
    ]:
        return None
    kept = next(place for place in range(len(order)) if order[place] != letters[place])
    inner = order[kept:].index(letters[kept]) + kept
    if order[inner:] + order[kept:inner] != letters[kept:]:
        return None
    groups = [[size_of[one] for one in part] for part in (order[:kept], order[kept:inner], order[inner:])]
    if any(isinstance(total := _number(part), int) and total < NARROW for part in groups[1:]):
        return None
    batch, rows, cols = groups
    return away[0], [load for load in every if load is not away[0]], batch, rows, cols


def _number(sizes: list[Size]) -> int | None:
    total = 1
    for size in sizes:
        if not isinstance(size, int):
            return None
        total *= size
    return total
