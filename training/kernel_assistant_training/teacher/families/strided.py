"""Reductions over neighbouring dimensions of which none is the last, with elementwise work on both sides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.sizes import Size
from kernel_assistant.records.canonical import Canonical
from kernel_assistant.records.graph import Node
from kernel_assistant_training.teacher.families.around import FLOATS, Around, around, in_two, pieces
from kernel_assistant_training.teacher.moving.frame import is_home, lambda_text, parameters
from kernel_assistant_training.teacher.moving.moves import argument, name_of, numbers
from kernel_assistant_training.teacher.text.answer import Answer
from kernel_assistant_training.teacher.text.named import Named
from kernel_assistant_training.teacher.text.sizes import NoForm
from kernel_assistant_training.teacher.text.terms import Apply, Name, Term

#: Operator → what joins values, what they are before, what becomes of the result ({1}: how many there were).
OPERATORS: dict[str, tuple[str, str, str]] = {
    "sum": ("ka::sum", "{0}", "{0}"),
    "mean": ("ka::sum", "{0}", "{0} / {1}"),
    "amax": ("ka::max", "{0}", "{0}"),
    "amin": ("ka::min", "{0}", "{0}"),
    "max": ("ka::max", "{0}", "{0}"),
    "min": ("ka::min", "{0}", "{0}"),
    "prod": ("ka::prod", "{0}", "{0}"),
}
NORMS = {1: ("ka::sum", "ka_abs({0})", "{0}"), 2: ("ka::sum", "{0} * {0}", "ka_sqrt({0})")}
#: With fewer columns than this, n is cut into pieces.
FEW_COLUMNS, LONG = 16384, 1024


@dataclass(frozen=True)
class Fold:
    """A reduction of [outer][n][inner] to [outer][inner]."""

    named: Named
    join: str
    first: str
    last: str
    outer: list[Size]
    n: list[Size]
    inner: list[Size]

    @property
    def count(self) -> str:
        return self.named.product(self.n)

    def result(self, total: Name) -> Term:
        if self.last == "{0}":
            return total
        divisor = Name("int64_t", self.count if " " not in self.count else f"({self.count})")
        return Apply("float", self.last, (total, divisor)[: 1 + ("{1}" in self.last)])


def answers(task: Canonical, target: str, random: Random) -> list[Answer]:
    names = {*OPERATORS, "linalg_vector_norm"}
    folds = [node for node in task.graph.nodes if node.op.partition(".")[0] in names]
    if len(folds) != 1:
        return []
    try:
        named = Named(task, target)
        (node,) = (one for one in named.graph.nodes if one.name == folds[0].name)
        fold = _fold(named, node)
        return _written(named, around(named, named.only_value(node), node.name, fold.result), fold)
    except (Unsupported, NoForm):
        return []


def _fold(named: Named, node: Node) -> Fold:
    name, shape = node.op.partition(".")[0], named.shape(name_of(node.args[0]))
    if name == "linalg_vector_norm":
        order = argument(node, 1, "ord", 2)
        dims = argument(node, 2, "dim")
        if order not in (1, 2):
            raise Unsupported(f"norm {order!r}")
        join, first, last = NORMS[int(str(order).partition(".")[0])]
    else:
        join, first, last = OPERATORS[name]
        dims = argument(node, 1, "dim")
    if dims is None or dims == []:
        raise Unsupported("a reduction of everything")
    gone = sorted({dim % len(shape) for dim in numbers(dims)})
    inner = shape[gone[-1] + 1 :]
    if gone != list(range(gone[0], gone[-1] + 1)) or all(size == 1 for size in inner):
        raise Unsupported("a reduction of rows")
    return Fold(named, join, first, last, shape[: gone[0]], shape[gone[0] : gone[-1] + 1], inner)


def _written(named: Named, place: Around, fold: Fold) -> list[Answer]:
    every = place.before_loads
    if place.after_loads or not every or not all(is_home(load, place.source, named) for load in every):
        raise Unsupported("operands that are broadcast")
    if any(load.dtype not in (*FLOATS, "b1") for load in every):
        raise Unsupported("a reduction of integers")
    names = parameters(every)
    first = place.before if fold.first == "{0}" else Apply("float", fold.first, (place.before,))
    before = lambda_text(first, [(load.ctype, names[id(load)]) for load in every], names)
    count = fold.count
    captures = named.prefix in count and "{1}" in fold.last
    after = lambda_text(place.after, [("float", place.hole.text)], {}, captures)
    inputs = ", ".join(named.prefix + load.buffer for load in every)
    inner = named.product(fold.inner)
    if named.target == "cpu":
        sizes = f"{named.product(fold.outer)}, {count}, {inner}"
        body = [f"ka::fold_columns<{fold.join}>({sizes}, {before}, {after}, {named.prefix}out0, {inputs});"]
        return [Answer(pieces(named, "", [], "", "ka/columns.h", body).source(), ("columns",))]
    body = [f"ka::fold_columns<X, Y, V, {fold.join}>({count}, {inner}, {before}, {after}, a.out0, {inputs});"]
    vector = 4
    outer_text, inner_text = named.product(fold.outer, ""), named.product(fold.inner, "")
    tiles = f"cdiv({inner_text},X*V)"
    grid = f"grid={tiles if outer_text == '1' else f'{outer_text}*{tiles}'} block=X*Y"
    made = [
        pieces(named, f"X={x} Y={y} V={v}", [], grid, "ka/columns.cuh", body, threads="X * Y")
        for x, y, v in _schedules(fold, vector)
    ]
    whole = [Answer(one.source(), ("columns",)) for one in made]
    cut = _cut(named, place, fold, before, after, inputs)
    return [*cut, *whole] if _is_long(named, fold) else whole


def _schedules(fold: Fold, vector: int) -> list[tuple[int, int, int]]:
    """Thread blocks to try, best first: (threads along columns, threads along n, columns for each thread)."""
    width = math.prod(size if isinstance(size, int) else 1 for size in fold.inner)
    if width < 64:
        return [(8, 64, 4), (8, 32, 4), (8, 32, 2), (16, 16, 2)]
    if width < 256:
        return [(16, 16, vector), (32, 8, vector), (16, 32, vector), (32, 16, 2)]
    return [(32, 8, vector), (32, 16, vector), (32, 4, vector), (64, 4, vector), (32, 8, 2)]


def _is_long(named: Named, fold: Fold) -> bool:
    """Whether there are fewer columns than threads, and columns so long that several threads should share one; at the
    base sizes."""
    columns, length = 1, 1
    for size in (*fold.outer, *fold.inner):
        columns *= named.value(size)
    for size in fold.n:
        length *= named.value(size)
    return columns < FEW_COLUMNS and length >= LONG


def _cut(named: Named, place: Around, fold: Fold, before: str, after: str, inputs: str) -> list[Answer]:
    """Two launches: the first reduces pieces of the columns, the second their results. Buffers between kernels are w0,
    w1, …"""
    count, inner = fold.count, named.product(fold.inner)
    outer_text, inner_text = named.product(fold.outer, ""), named.product(fold.inner, "")
    above = "" if outer_text == "1" else f"{outer_text}*"
    hole = place.hole.text
    first = f"ka::fold_chunks<X, Y, V, {fold.join}>({count}, {inner}, P, {before}, a.u0, {inputs});"
    keep = f"[](float {hole}) {{ return {hole}; }}"
    second = f"ka::fold_columns<X, Y, V, {fold.join}>(P, {inner}, {keep}, {after}, a.out0, a.u0);"
    grid, include = f"cdiv({inner_text},X*V) block=X*Y", "ka/columns.cuh"
    found = []
    for parts in (64, 128, 32):
        one = pieces(named, "", [], f"grid={above}P*{grid}", include, [first], ("u0",), "X * Y")
        two = pieces(named, "", [], f"grid={above}{grid}", include, [second], ("u0", "out0"), "X * Y")
        made = in_two(one, two, f"X=32 Y=8 V=4 P={parts}", f"u0 f32[{above}P, {inner_text}]")
        found.append(Answer(made.source(), ("columns-cut",)))
    return found
