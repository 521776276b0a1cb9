"""What all CPU forms share: pointers, element access, loops with lanes, tiles that are streamed out."""

from __future__ import annotations

from kernel_assistant.generator.expr import Axis, Expr, Op, Reduce
from kernel_assistant.generator.lower import Output
from kernel_assistant.generator.nest import Access, Nest, accesses
from kernel_assistant.generator.passes import Pass
from kernel_assistant.generator.render import Body, Unit, element, joined

#: Below this many elements a parallel region costs more than it gains.
PARALLEL_FROM = 32768
#: Elements whose lane sums are folded into a double at a time.
CHUNK = 8192

IDENTITY = {
    ("sum", "float"): "0",
    ("prod", "float"): "1",
    ("max", "float"): "-INFINITY",
    ("min", "float"): "INFINITY",
    ("sum", "int64_t"): "0",
    ("prod", "int64_t"): "1",
    ("max", "int64_t"): "INT64_MIN",
    ("min", "int64_t"): "INT64_MAX",
    ("max", "bool"): "false",
    ("min", "bool"): "true",
}
STEP = {"sum": "{0} += {1};", "prod": "{0} *= {1};", "max": "{0} = ka_max({1}, {0});", "min": "{0} = ka_min({1}, {0});"}


def identity(reduce: Reduce) -> str:
    return IDENTITY[reduce.kind, "float" if reduce.ctype == "double" else reduce.ctype]


def total_type(reduce: Reduce) -> str:
    """Sums and products of floats are totalled in double."""
    return "double" if reduce.kind in ("sum", "prod") and reduce.ctype == "float" else reduce.ctype


def fold(reduce: Reduce, lanes: int, name: str) -> str:
    return f"ka_fold_{reduce.kind}<{lanes}>({name})"


def costly(expr: Expr) -> bool:
    """Worth keeping in a row buffer: a division, or a function that is more than a few instructions."""
    cheap = ("ka_square", "ka_max", "ka_min", "ka_abs", "ka_relu", "ka_clamp", "ka_leaky_relu", "ka_sqrt")
    if not isinstance(expr, Op):
        return False
    return ("ka_" in expr.text and not expr.text.startswith(cheap)) or " / " in expr.text


def parallel(unit: Unit, work: str) -> None:
    unit.add(f"#pragma omp parallel for schedule(static) if ({work} > {PARALLEL_FROM})")


def pointers(unit: Unit, nest: Nest, axes: list[Axis], var: str) -> None:
    """A pointer per access, moved to where the outer loops stand."""
    for access in accesses(nest):
        place = joined(unit.size(access.offset) if access.offset != 0 else "", unit.position(access, axes, var))
        if not access.buffer:
            unit.add(f"const int64_t {access.name or 'at'} = {place};")
            continue
        const = "" if access.buffer.startswith("out") else "const "
        kind = f"{const}{element(access, 'cpu')}* __restrict__"
        tail = "" if place == "0" else f" + {place}"
        unit.add_if_used(access.name, f"{kind} {access.name} = {unit.buffer(access.buffer)}{tail};")


def loads(unit: Unit, nest: Nest, *loops: tuple[list[Axis], str]) -> dict[int, str]:
    """Text of every load where the loops (axes, variable) stand."""
    found = {}
    for access in dict.fromkeys(nest.loads.values()):
        place = joined(*(unit.position(access, axes, var) for axes, var in loops))
        found[id(access)] = unit.fetch(access, place)
    return found


def stores(
    body: Body, part: list[tuple[Access, Output]], *loops: tuple[list[Axis], str], tiles: dict[str, str] | None = None
) -> None:
    """Write the outputs at the current position; `tiles` maps an output to the buffer that takes its place."""
    for access, output in part:
        place = (tiles or {}).get(access.name) or (
            f"{access.name}[{joined(*(body.unit.position(access, axes, var) for axes, var in loops))}]"
        )
        body.unit.add(f"ka_put({place}, {body.name(output.expr)});")


def streamed(nest: Nest, part: Pass, axes: list[Axis], nt: int) -> list[Access]:
    """The stores that can bypass the cache: contiguous along the inner loop."""
    return [access for access, _ in part.stores if nt and access.linear(axes) == 1]


def reduce_loop(body: Body, part: Pass, lanes: int, begin: str, end: str, keep: dict[int, str]) -> None:
    """Code for one pass of reductions over q in [begin, end): r<i> is left in scope as each result's total."""
    unit, nest = body.unit, body.nest
    inner = body.inner()
    names = {id(reduce): f"r{nest.reduces.index(reduce)}" for reduce in part.reduces}
    params = ", ".join(f"{reduce.ctype}& {names[id(reduce)]}" for reduce in part.reduces)
    step = f"step_{names[id(part.reduces[0])]}"
    unit.open(f"const auto {step} = [&](int64_t q, {params}) __attribute__((always_inline))")
    _take_kept(inner, part, keep)
    inner.write(part.body, loads(unit, nest, (nest.reduced, "q")))
    for expr in part.kept:
        unit.add(f"{keep[id(expr)]}[q] = {inner.name(expr)};")
    for reduce in part.reduces:
        unit.add(STEP[reduce.kind].format(names[id(reduce)], inner.name(reduce.arg)))
    unit.close(";")
    for reduce in part.reduces:
        unit.add(f"{total_type(reduce)} total_{names[id(reduce)]} = {identity(reduce)};")
    unit.open(f"for (int64_t c = {begin}; c < {end}; c += {CHUNK})")
    unit.add(f"const int64_t stop = ka_min({end}, c + {CHUNK});")
    for reduce in part.reduces:
        unit.add(f"{reduce.ctype} lane_{names[id(reduce)]}[{lanes}];")
        unit.add(f"for (int l = 0; l < {lanes}; ++l) lane_{names[id(reduce)]}[l] = {identity(reduce)};")
    unit.add("int64_t q = c;")
    lane = ", ".join(f"lane_{names[id(reduce)]}[l]" for reduce in part.reduces)
    unit.open(f"for (; q + {lanes} <= stop; q += {lanes})")
    unit.add("#pragma omp simd")
    unit.add(f"for (int l = 0; l < {lanes}; ++l) {step}(q + l, {lane});")
    unit.close()
    unit.add("const int left = (int)(stop - q);")
    unit.add("#pragma omp simd")
    unit.add(f"for (int l = 0; l < left; ++l) {step}(q + l, {lane});")
    for reduce in part.reduces:
        name = names[id(reduce)]
        unit.add(STEP[reduce.kind].format(f"total_{name}", fold(reduce, lanes, f"lane_{name}")))
    unit.close()


def _take_kept(inner: Body, part: Pass, keep: dict[int, str]) -> None:
    """Name the values that earlier passes left in row buffers."""
    computed = {id(expr) for expr in part.body}
    inner.names.update((place, f"{name}[q]") for place, name in keep.items() if place not in computed)


def take_totals(body: Body, part: Pass) -> None:
    """Name the results of the reductions that `reduce_loop` left as totals."""
    for reduce in part.reduces:
        name = f"r{body.nest.reduces.index(reduce)}"
        body.unit.add(f"const {reduce.ctype} {name} = ({reduce.ctype})total_{name};")
        body.names[id(reduce)] = name


def store_loop(body: Body, part: Pass, begin: str, end: str, nt: int, keep: dict[int, str], tile: int = 512) -> None:
    """Code for the last pass: outputs at q in [begin, end), through a tile where they are streamed."""
    unit, nest = body.unit, body.nest
    inner = body.inner()
    _take_kept(inner, part, keep)
    through = streamed(nest, part, nest.reduced, nt)
    if through:
        unit.open(f"for (int64_t c = {begin}; c < {end}; c += {tile})")
        unit.add(f"const int64_t stop = ka_min({end}, c + {tile});")
        for access in through:
            unit.add(f"alignas(64) {element(access, 'cpu')} tile_{access.name}[{tile}];")
        begin, end = "c", "stop"
    unit.add("#pragma omp simd")
    unit.open(f"for (int64_t q = {begin}; q < {end}; ++q)")
    inner.write(part.body, loads(unit, nest, (nest.reduced, "q")))
    tiles = {access.name: f"tile_{access.name}[q - c]" for access in through}
    stores(inner, part.stores, (nest.reduced, "q"), tiles=tiles)
    unit.close()
    if through:
        for access in through:
            unit.add(f"ka_stream({access.name} + c, tile_{access.name}, (stop - c) * sizeof({access.name}[0]));")
        unit.close()
        unit.add("ka_stream_end();")


def row_bytes(exprs: list[Expr]) -> int:
    return sum({"float": 4, "double": 8, "int64_t": 8, "bool": 1}[expr.ctype] for expr in exprs)
