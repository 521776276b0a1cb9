"""Code that all CPU forms share: pointers, element access, loops over SIMD lanes, and tiles that are written with
streaming stores.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Axis, Expr, Op, PrefixScan, Reduce
from kernel_assistant.generator.loops.nest import Access, LoopNest
from kernel_assistant.generator.loops.passes import Pass
from kernel_assistant.generator.lower.lower import Output
from kernel_assistant.generator.print.cpu.walk import Walk
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, element, joined

#: Below this many elements a parallel region costs more than it gains.
PARALLEL_FROM = 32768
#: Elements whose lane sums are folded into a double at a time.
CHUNK = 8192

IDENTITY = {
    ("sum", "float"): "0",
    ("prod", "float"): "1",
    ("max", "float"): "-INFINITY",
    ("min", "float"): "INFINITY",
    ("logaddexp", "float"): "-INFINITY",
    ("sum", "int64_t"): "0",
    ("prod", "int64_t"): "1",
    ("max", "int64_t"): "INT64_MIN",
    ("min", "int64_t"): "INT64_MAX",
    ("max", "bool"): "false",
    ("min", "bool"): "true",
}
STEP = {"sum": "{0} += {1};", "prod": "{0} *= {1};", "max": "{0} = ka_max({1}, {0});", "min": "{0} = ka_min({1}, {0});"}


def identity(expr: Reduce | PrefixScan) -> str:
    return IDENTITY[expr.kind, "float" if expr.ctype == "double" else expr.ctype]


def total_type(reduce: Reduce) -> str:
    """Returns the C type of a reduction's running total: double for sums and products of floats."""
    return "double" if reduce.kind in ("sum", "prod") and reduce.ctype == "float" else reduce.ctype


def fold(reduce: Reduce, lanes: int, name: str) -> str:
    return f"ka_fold_{reduce.kind}<{lanes}>({name})"


def costly(expr: Expr) -> bool:
    """Whether a value is expensive enough to be kept in a row buffer: it is a division, or a function of more than a
    few instructions.
    """
    cheap = ("ka_add", "ka_sub", "ka_mul", "ka_neg", "ka_square", "ka_max", "ka_min", "ka_abs", "ka_relu", "ka_clamp")
    if not isinstance(expr, Op):
        return False
    return ("ka_" in expr.text and not expr.text.startswith((*cheap, "ka_leaky_relu", "ka_sqrt"))) or " / " in expr.text


def parallel(unit: KernelSource, work: str) -> None:
    unit.add(f"#pragma omp parallel for schedule(static) if ({work} > {PARALLEL_FROM})")


def loads(unit: KernelSource, nest: LoopNest, *loops: tuple[list[Axis], str]) -> dict[int, str]:
    """Returns the C text of every load, by the `id` of its access. `loops` gives the position, as pairs of axes and the
    variable that counts along them.
    """
    texts = {}
    for access in dict.fromkeys(nest.loads.values()):
        position = joined(*(unit.position(access, axes, var) for axes, var in loops))
        texts[id(access)] = unit.fetch(access, position)
    return texts


def stores(
    body: StatementWriter,
    part: list[tuple[Access, Output]],
    *loops: tuple[list[Axis], str],
    tiles: dict[str, str] | None = None,
) -> None:
    """Writes the stores of outputs at the position that `loops` gives. `tiles` maps the name of an output's access to
    the C text of an element that is written instead of memory."""
    for access, output in part:
        target = (tiles or {}).get(access.name) or (
            f"{access.name}[{joined(*(body.unit.position(access, axes, var) for axes, var in loops))}]"
        )
        body.unit.add(f"ka_put({target}, {body.name(output.expr)});")


def streamed(nest: LoopNest, part: Pass, axes: list[Axis], nt: int) -> list[Access]:
    """Returns the stores of a pass that bypass the cache: with `nt`, those that are contiguous along `axes`; otherwise
    none."""
    return [access for access, _ in part.stores if nt and access.linear(axes) == 1]


def reduce_loop(body: StatementWriter, part: Pass, lanes: int, keep: dict[int, str], walk: Walk) -> None:
    """Writes one pass that computes the reductions of `part` along the loop `walk`, each with `lanes` partial results
    (SIMD lanes). The variables total_r… hold the totals afterwards. `keep` has the names of the row buffers for values
    that several passes read, by the `id` of the expression."""
    unit, nest = body.unit, body.nest
    begin, end = walk.limits
    pieces = walk.pieces(CHUNK)
    for reduce in part.reduces:
        unit.add(f"{total_type(reduce)} total_{nest.result(reduce)} = {identity(reduce)};")
    if pieces:
        # Several pieces share their lanes: folding them costs as much as a short piece.
        walk.open_batch(unit, nest, pieces)
        _begin_lanes(unit, nest, part, lanes)
        walk.open(unit, nest, pieces)
        _write_step(body, part, keep, walk)
        _run_lanes(unit, nest, part, lanes, begin, end)
        unit.close()
        _fold_lanes(unit, nest, part, lanes)
        unit.close()
        return
    walk.open(unit, nest)
    _write_step(body, part, keep, walk)
    unit.open(f"for (int64_t c = {begin}; c < {end}; c += {CHUNK})")
    unit.add(f"const int64_t stop = ka_min({end}, c + {CHUNK});")
    _begin_lanes(unit, nest, part, lanes)
    _run_lanes(unit, nest, part, lanes, "c", "stop")
    _fold_lanes(unit, nest, part, lanes)
    unit.close()
    walk.close(unit)


def _names(nest: LoopNest, part: Pass) -> list[tuple[Reduce, str]]:
    return [(reduce, nest.result(reduce)) for reduce in part.reduces]


def _write_step(body: StatementWriter, part: Pass, keep: dict[int, str], walk: Walk) -> None:
    """Writes a C++ lambda `step_r…`, which adds the element at position q to one lane of each reduction."""
    unit, nest = body.unit, body.nest
    inner, names = body.inner(), _names(nest, part)
    params = ", ".join(f"{reduce.ctype}& {name}" for reduce, name in names)
    unit.open(f"const auto step_{names[0][1]} = [&](int64_t q, {params}) __attribute__((always_inline))")
    kept = {expr_id: walk.kept(name) for expr_id, name in keep.items()}
    _take_kept(inner, part, kept)
    inner.write(part.body, loads(unit, nest, *walk.loops))
    for expr in part.kept:
        unit.add(f"{kept[id(expr)]} = {inner.name(expr)};")
    for reduce, name in names:
        unit.add(STEP[reduce.kind].format(name, inner.name(reduce.arg)))
    unit.close(";")


def _begin_lanes(unit: KernelSource, nest: LoopNest, part: Pass, lanes: int) -> None:
    for reduce, name in _names(nest, part):
        unit.add(f"{reduce.ctype} lane_{name}[{lanes}];")
        unit.add(f"for (int l = 0; l < {lanes}; ++l) lane_{name}[l] = {identity(reduce)};")


def _run_lanes(unit: KernelSource, nest: LoopNest, part: Pass, lanes: int, begin: str, end: str) -> None:
    names = _names(nest, part)
    lane = ", ".join(f"lane_{name}[l]" for _, name in names)
    unit.add(f"int64_t q = {begin};")
    unit.open(f"for (; q + {lanes} <= {end}; q += {lanes})")
    unit.add("#pragma omp simd")
    unit.add(f"for (int l = 0; l < {lanes}; ++l) step_{names[0][1]}(q + l, {lane});")
    unit.close()
    unit.add(f"const int left = (int)({end} - q);")
    unit.add("#pragma omp simd")
    unit.add(f"for (int l = 0; l < left; ++l) step_{names[0][1]}(q + l, {lane});")


def _fold_lanes(unit: KernelSource, nest: LoopNest, part: Pass, lanes: int) -> None:
    for reduce, name in _names(nest, part):
        unit.add(STEP[reduce.kind].format(f"total_{name}", fold(reduce, lanes, f"lane_{name}")))


def _take_kept(inner: StatementWriter, part: Pass, keep: dict[int, str]) -> None:
    """Registers in `inner` the values that earlier passes stored in row buffers; `keep` maps the `id` of an expression
    to the C text of its element."""
    computed = {id(expr) for expr in part.body}
    inner.names.update((expr_id, name) for expr_id, name in keep.items() if expr_id not in computed)


def take_totals(body: StatementWriter, part: Pass) -> None:
    """Writes the conversion of the totals of `reduce_loop` to the results' C types, and registers the converted
    variables in `body`, so that later statements read them."""
    for reduce in part.reduces:
        name = body.nest.result(reduce)
        body.unit.add(f"const {reduce.ctype} {name} = ({reduce.ctype})total_{name};")
        body.names[id(reduce)] = name


def store_loop(body: StatementWriter, part: Pass, nt: int, keep: dict[int, str], walk: Walk) -> None:
    """Writes the last pass, which computes and stores the outputs along the loop `walk`. With `nt`, contiguous outputs
    are collected in a small array, which is then written with streaming stores. `keep` has the names of the row buffers
    with values of earlier passes, by the `id` of the expression."""
    unit, nest, tile = body.unit, body.nest, 512
    begin, end = walk.limits
    inner = body.inner()
    _take_kept(inner, part, {expr_id: walk.kept(name) for expr_id, name in keep.items()})
    through = streamed(nest, part, walk.inner, nt)
    walk.open(unit, nest)
    if through:
        unit.open(f"for (int64_t c = {begin}; c < {end}; c += {tile})")
        unit.add(f"const int64_t stop = ka_min({end}, c + {tile});")
        for access in through:
            unit.add(f"alignas(64) {element(access, 'cpu')} tile_{access.name}[{tile}];")
        begin, end = "c", "stop"
    unit.add("#pragma omp simd")
    unit.open(f"for (int64_t q = {begin}; q < {end}; ++q)")
    inner.write(part.body, loads(unit, nest, *walk.loops))
    tiles = {access.name: f"tile_{access.name}[q - c]" for access in through}
    stores(inner, part.stores, *walk.loops, tiles=tiles)
    unit.close()
    for access in through:
        to = joined(access.name, unit.position(access, walk.outer, "p") if walk.outer else "", "c")
        unit.add(f"ka_stream({to}, tile_{access.name}, (stop - c) * sizeof({access.name}[0]));")
    if through:
        unit.close()
    walk.close(unit)
    if through:
        unit.add("ka_stream_end();")


def row_bytes(exprs: list[Expr]) -> int:
    return sum({"float": 4, "double": 8, "int64_t": 8, "bool": 1}[expr.ctype] for expr in exprs)
