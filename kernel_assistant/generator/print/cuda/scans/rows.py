"""Writes cumulative sums, products and extremes of rows: a block scans each row, in tiles with `items` vectors for each
thread. Scans of columns and short rows are in `threads.py`, of few long rows in `split.py`.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import PrefixScan
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import multiple_of, size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import Pass, plan_passes
from kernel_assistant.generator.print.cpu.common import identity
from kernel_assistant.generator.print.cpu.scan import after_scans, before_scans, carry_type, direction
from kernel_assistant.generator.print.cuda.common import (
    OPERATOR,
    PassReductions,
    many_additions,
    store_scope,
    write_scope,
)
from kernel_assistant.generator.print.cuda.group import VectorLayout, VectorWriter, index_type, make_layout
from kernel_assistant.generator.print.cuda.rows import shift_text
from kernel_assistant.generator.print.cuda.sweeps import Sweep
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, element, pointers
from kernel_assistant.records import Launch


def partial_type(scan: PrefixScan) -> str:
    """Returns the C type of partial results within a warp: products of floats need the range of double."""
    return "double" if scan.kind == "prod" and scan.ctype == "float" else scan.ctype


def emit_scan_rows(nest: LoopNest, schedule: Schedule) -> tuple[KernelSource, Launch]:
    unit = KernelSource(nest.prefix + "scan_rows", "cuda")
    block, vec, items = schedule["block"], schedule["vec"], schedule["items"]
    if block * items > 1024:
        raise Unsupported("a tile of a scan has at most 1024 vectors")
    reverse = direction(nest)
    size = nest.size(nest.reduced)
    if reverse and not multiple_of(size, vec):
        raise Unsupported("a reverse scan of rows that are not whole vectors")
    layout = make_layout(nest, nest.reduced, nest.outer, vec, schedule["hint"], shiftable=not reverse)
    layout.index = index_type(size)
    plan = plan_passes(nest, joint=True)
    unit.add(f"const {layout.index} R = {unit.size(size)};")
    unit.add_if_used("o", "const int64_t o = blockIdx.x;")
    pointers(unit, nest, nest.outer, "o")
    unit.add(f"const {layout.index} first = (int)threadIdx.x * {vec}{shift_text(unit, nest, layout)};")
    body = StatementWriter(unit, nest)
    for part in plan.passes[:-1]:
        write_scope(body, part.scope)
        reducing = PassReductions(nest, part, joint=True, many=many_additions(size, block))
        reducing.declare(unit)
        Sweep(layout, block, block * vec, 2).write(body, part, reducing, first=True)
        reducing.finish(body, block, 1)
    write_scope(body, plan.passes[-1].scope)
    follow(layout, reverse)
    for number, scan in enumerate(nest.scans):
        unit.add(f"{carry_type(scan)} carry{number} = {identity(scan)};")
    write_tiles(body, plan.passes[-1], items, block, layout, "0", f"R{slack(layout)}")
    write_scope(body, plan.scope)
    store_scope(body, plan.stores, "threadIdx.x == 0")
    unit.finish(bounds=f"__launch_bounds__({block}) ")
    return unit, unit.launch((size_text(nest.size(nest.outer)), "1", "1"), block)


def follow(layout: VectorLayout, reverse: bool) -> None:
    """Changes `layout` to the direction of the scan: with `reverse`, positions count from the end of the row."""
    layout.reverse, layout.at = reverse, "R - 1 - ({})" if reverse else "{}"


def slack(layout: VectorLayout) -> str:
    """Returns C text " + …" that adds the number of elements by which the first vector may begin before the row; "" if
    rows begin aligned.
    """
    return f" + {layout.vec - 1}" if layout.shift is not None else ""


def write_tiles(
    body: StatementWriter, part: Pass, items: int, block: int, layout: VectorLayout, begin: str, end: str
) -> None:
    """Writes the loop over the tiles of a row from `begin` to `end` (C texts), in which the block scans a tile and
    stores the outputs. The C variables carry0, … hold the scans' running values before the current tile; the caller
    declares them.
    """
    unit, nest, vec = body.unit, body.nest, layout.vec
    scans = nest.scans
    unit.add("int parity = 0;")
    width = block * vec
    # All threads take part in every tile: the block scans together.
    unit.open(f"for ({layout.index} tile = {begin}; tile < {end}; tile += {items * width}, parity ^= 1)")
    for number, scan in enumerate(scans):
        unit.add(f"{partial_type(scan)} v{number}[{items}][{vec}];")
    group = VectorWriter(body, layout, "[n]")
    before = before_scans(part, scans)
    group.declare(before, f"[{items}]")
    sweep(unit, layout.index, items, width)
    group.load(before)
    unit.close()
    sweep(unit, layout.index, items, width)
    inner = group.open()
    inner.write(before, group.texts())
    for number, scan in enumerate(scans):
        inside = layout.inside()
        value = f"{inside} ? {inner.name(scan.arg)} : {identity(scan)}" if inside else inner.name(scan.arg)
        unit.add(f"v{number}[n][k] = {value};")
    unit.close()
    unit.close()
    for number, scan in enumerate(scans):
        kind = f"ka_block_scan<{number}, {block}, {items}, {vec}, {OPERATOR[scan.kind]}>"
        none = f"({partial_type(scan)}){identity(scan)}"
        exclusive = "true" if scan.exclusive else "false"
        unit.add(f"{kind}(v{number}, carry{number}, {none}, {exclusive}, parity);")
    sweep(unit, layout.index, items, width)
    after = after_scans(part, scans)
    held = {id(access) for access in group.wanted(before)}
    late = VectorWriter(body, layout, "[n]")
    fresh = [access for access in late.wanted(after) if id(access) not in held]
    for access in fresh:
        unit.add(f"{element(access, 'cuda')} l_{access.name}[{items}][{vec}];")
        late.load_one(access)
    late.declare_stores(part.stores)
    inner = late.open()
    inner.names.update((id(scan), f"({scan.ctype})v{number}[n][k]") for number, scan in enumerate(scans))
    inner.write(after, late.texts())
    late.put(inner, part.stores)
    unit.close()
    late.store(part.stores)
    unit.close()
    unit.close()


def sweep(unit: KernelSource, index: str, items: int, step: int) -> None:
    """Begins the loop over the `items` vectors of a thread in one tile, which are `step` elements apart; `index` is the
    C type of positions."""
    unit.add("#pragma unroll")
    unit.open(f"for (int n = 0; n < {items}; ++n)")
    unit.add_if_used("e", f"const {index} e = first + tile + n * {step};")
