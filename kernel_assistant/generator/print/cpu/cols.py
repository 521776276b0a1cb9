"""Writes reductions over a dimension that is not the last for the CPU. For each tile of columns (the inner loop I), the
loop over the reduced dimension R is the outer one, so that memory is read in order.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Const, Expr, Load, children
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import Pass, Passes, plan_passes, read_elsewhere
from kernel_assistant.generator.print.cpu.common import STEP, identity, loads, parallel, stores, streamed, total_type
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, element, pointers

#: Rows that are summed in the working type before they are added to the total.
BLOCK = 32


def emit_cols(nest: LoopNest, schedule: Schedule) -> KernelSource:
    unit = KernelSource(nest.prefix + "cols", "cpu")
    tile = schedule["tile"]
    plan = plan_passes(nest)
    sizes = [unit.size(nest.size(axes)) for axes in (nest.outer, nest.reduced, nest.inner)]
    unit.add(f"const int64_t O = {sizes[0]}, R = {sizes[1]}, I = {sizes[2]};")
    unit.add(f"const int64_t tiles = (I + {tile - 1}) / {tile};")
    parallel(unit, "O * R * I")
    unit.open("for (int64_t task = 0; task < O * tiles; ++task)")
    unit.add_if_used("o", "const int64_t o = task / tiles;")
    unit.add(f"const int64_t begin = task % tiles * {tile};")
    unit.add(f"const int n = (int)ka_min(I - begin, (int64_t){tile});")
    pointers(unit, nest, nest.outer, "o")
    body = StatementWriter(unit, nest)
    for part in plan.passes:
        scope_loop(body, part.scope, tile)
        if part.reduces:
            reduce_rows(body, part, tile)
            round_totals(body, part, tile)
        else:
            store_rows(body, part, tile, schedule["nt"])
    scope_loop(body, plan.scope, tile)
    store_outside(body, plan)
    unit.close()
    return unit


def scope_loop(body: StatementWriter, scope: list[Expr], tile: int, read: list[Expr] | None = None) -> None:
    """Writes a loop over the tile's columns that computes the values `scope`, which do not vary along the reduced loop
    R. Those in `read` (by default all that are read outside of `scope`) are stored in arrays of `tile` elements, which
    are registered in `body`.
    """
    if not scope:
        return
    unit = body.unit
    read = read_elsewhere(body.nest, scope) if read is None else read
    arrays = {id(expr): body.fresh("s", expr) for expr in read}
    for expr in read:
        unit.add(f"{expr.ctype} {arrays[id(expr)]}[{tile}];")
    inner = open_columns(body)
    inner.write(scope, loads(unit, body.nest, (body.nest.inner, "i")))
    for expr in read:
        unit.add(f"{arrays[id(expr)]}[j] = {inner.name(expr)};")
        body.names[id(expr)] = f"{arrays[id(expr)]}[j]"
    unit.close()


def open_columns(body: StatementWriter) -> StatementWriter:
    body.unit.add("#pragma omp simd")
    body.unit.open("for (int j = 0; j < n; ++j)")
    body.unit.add_if_used("i", "const int64_t i = begin + j;")
    return body.inner()


def reduce_rows(body: StatementWriter, part: Pass, tile: int, first: str = "0", last: str = "R") -> None:
    """Writes one pass of reductions over the rows [first, last) of the reduced loop R; both are C texts. The arrays
    total_r… hold the totals afterwards, one element for each column of the tile."""
    unit, nest = body.unit, body.nest
    names = {id(reduce): nest.result(reduce) for reduce in part.reduces}
    for reduce in part.reduces:
        name = names[id(reduce)]
        unit.add(f"{total_type(reduce)} total_{name}[{tile}];")
        unit.add(f"{reduce.ctype} {name}[{tile}];")
        unit.add(f"for (int j = 0; j < {tile}; ++j) total_{name}[j] = {identity(reduce)};")
    unit.open(f"for (int64_t c = {first}; c < {last}; c += {BLOCK})")
    for reduce in part.reduces:
        unit.add(f"for (int j = 0; j < {tile}; ++j) {names[id(reduce)]}[j] = {identity(reduce)};")
    unit.open(f"for (int64_t q = c; q < ka_min({last}, c + {BLOCK}); ++q)")
    texts = loads(unit, nest, (nest.reduced, "q"), (nest.inner, "i"))
    row = body.inner()
    row.write(_of_the_row(nest, part.body), texts)
    inner = open_columns(row)
    inner.write(part.body, texts)
    for reduce in part.reduces:
        unit.add(STEP[reduce.kind].format(f"{names[id(reduce)]}[j]", inner.name(reduce.arg)))
    unit.close()
    unit.close()
    for reduce in part.reduces:
        name = names[id(reduce)]
        unit.add(f"for (int j = 0; j < {tile}; ++j) " + STEP[reduce.kind].format(f"total_{name}[j]", f"{name}[j]"))
    unit.close()


def round_totals(body: StatementWriter, part: Pass, tile: int) -> None:
    """Writes the conversion of the totals to the C types of the reductions, and registers the arrays of the results in
    `body`."""
    unit = body.unit
    for reduce in part.reduces:
        name = body.nest.result(reduce)
        unit.add(f"for (int j = 0; j < {tile}; ++j) {name}[j] = ({reduce.ctype})total_{name}[j];")
        body.names[id(reduce)] = f"{name}[j]"


def _of_the_row(nest: LoopNest, exprs: list[Expr]) -> list[Expr]:
    """Returns the expressions that have the same value in all columns, such as the index of a gathered row."""
    own = {id(expr) for expr in exprs}
    steady: dict[int, Expr] = {}
    for expr in exprs:
        moves = isinstance(expr, Load) and any(axis in nest.inner for axis in nest.loads[id(expr)].index)
        if not moves and all(
            id(one) in steady or (id(one) not in own and isinstance(one, Const)) for one in children(expr)
        ):
            steady[id(expr)] = expr
    return list(steady.values())


def store_rows(body: StatementWriter, part: Pass, tile: int, nt: int, first: str = "0", last: str = "R") -> None:
    """Writes the pass over the rows [first, last), two C texts, that computes and stores the outputs that vary along
    the reduced loop R. With `nt`, streaming stores bypass the cache where outputs are contiguous."""
    unit, nest = body.unit, body.nest
    through = streamed(nest, part, nest.inner, nt)
    unit.open(f"for (int64_t q = {first}; q < {last}; ++q)")
    for access in through:
        unit.add(f"alignas(64) {element(access, 'cpu')} tile_{access.name}[{tile}];")
    inner = open_columns(body)
    inner.write(part.body, loads(unit, nest, (nest.reduced, "q"), (nest.inner, "i")))
    tiles = {access.name: f"tile_{access.name}[j]" for access in through}
    stores(inner, part.stores, (nest.reduced, "q"), (nest.inner, "i"), tiles=tiles)
    unit.close()
    for access in through:
        offset = unit.position(access, nest.reduced, "q") or "0"
        unit.add(f"ka_stream({access.name} + {offset} + begin, tile_{access.name}, n * sizeof({access.name}[0]));")
    unit.close()
    if through:
        unit.add("ka_stream_end();")


def store_outside(body: StatementWriter, plan: Passes) -> None:
    """Writes the stores of the outputs that do not vary along the reduced loop R."""
    if plan.stores:
        inner = open_columns(body)
        stores(inner, plan.stores, (body.nest.inner, "i"))
        body.unit.close()
