"""Writes cumulative sums, products and extremes of rows for the CPU; a function of `ka_cpu.h` scans each row in tiles.
Scans of columns are in `scan_cols.py`."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Expr, PrefixScan, children
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import Pass, plan_passes
from kernel_assistant.generator.print.cpu.common import (
    identity,
    loads,
    parallel,
    reduce_loop,
    stores,
    streamed,
    take_totals,
)
from kernel_assistant.generator.print.cpu.walk import walk_of
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, element, pointers


def before_scans(part: Pass, scans: list[PrefixScan]) -> list[Expr]:
    """Returns the expressions of the last pass from which the arguments of the scans are computed, in order."""
    wanted = {id(scan.arg) for scan in scans}
    for expr in reversed(part.body):
        if id(expr) in wanted and not isinstance(expr, PrefixScan):
            wanted.update(id(child) for child in children(expr))
    return [expr for expr in part.body if id(expr) in wanted]


def after_scans(part: Pass, scans: list[PrefixScan]) -> list[Expr]:
    """Returns the expressions of the last pass from which the outputs are computed, without the scans, in order."""
    wanted = {id(output.expr) for _, output in part.stores}
    for expr in reversed(part.body):
        if id(expr) in wanted and not isinstance(expr, PrefixScan):
            wanted.update(id(child) for child in children(expr))
    return [expr for expr in part.body if id(expr) in wanted and not isinstance(expr, PrefixScan)]


def direction(nest: LoopNest) -> bool:
    """Whether the scans run from the end to the beginning. Raises Unsupported if they differ."""
    directions = {scan.reverse for scan in nest.scans}
    if len(directions) > 1:
        raise Unsupported("scans in both directions")
    return directions.pop()


def carry_type(scan: PrefixScan) -> str:
    return "int64_t" if scan.ctype in ("int64_t", "bool") else "double"


def step(scan: PrefixScan, carry: str, value: str) -> str:
    """Returns C text of the scan's running value behind an element: `carry` is C text of the running value before the
    element, `value` of the element."""
    if scan.kind in ("sum", "prod"):
        return f"{carry} {'*' if scan.kind == 'prod' else '+'} {value}"
    return f"ka_{scan.kind}({carry}, ({carry_type(scan)}){value})"


def emit_scan_rows(nest: LoopNest, schedule: Schedule) -> KernelSource:
    unit = KernelSource(nest.prefix + "scan_rows", "cpu")
    plan, tile = plan_passes(nest), schedule["tile"]
    unit.add(f"const int64_t O = {unit.size(nest.size(nest.outer))}, R = {unit.size(nest.size(nest.reduced))};")
    parallel(unit, "O * R")
    unit.open("for (int64_t o = 0; o < O; ++o)")
    pointers(unit, nest, nest.outer, "o")
    body = StatementWriter(unit, nest)
    for part in plan.passes[:-1]:
        body.write(part.scope, loads(unit, nest), "s")
        reduce_loop(body, part, schedule["lanes"], {}, walk_of(nest))
        take_totals(body, part)
    body.write(plan.passes[-1].scope, loads(unit, nest), "s")
    _scan_tiles(body, plan.passes[-1], tile, schedule["nt"])
    body.write(plan.scope, loads(unit, nest), "s")
    stores(body, plan.stores)
    unit.close()
    return unit


def _scan_tiles(body: StatementWriter, part: Pass, tile: int, nt: int) -> None:
    unit, nest, reverse = body.unit, body.nest, direction(body.nest)
    for number, scan in enumerate(nest.scans):
        unit.add(f"{carry_type(scan)} carry{number} = {identity(scan)};")
    through = [] if reverse else streamed(nest, part, nest.reduced, nt)
    unit.open(f"for (int64_t c = 0; c < R; c += {tile})")
    unit.add(f"const int n = (int)ka_min(R - c, (int64_t){tile});")
    at = "const int64_t q = " + ("R - 1 - (c + j);" if reverse else "c + j;")
    for number, scan in enumerate(nest.scans):
        unit.add(f"alignas(64) {scan.ctype} scan{number}[{tile}];")
    for access in through:
        unit.add(f"alignas(64) {element(access, 'cpu')} tile_{access.name}[{tile}];")
    inner = _tile_loop(body, at)
    inner.write(before_scans(part, nest.scans), loads(unit, nest, (nest.reduced, "q")))
    for number, scan in enumerate(nest.scans):
        unit.add(f"scan{number}[j] = {inner.name(scan.arg)};")
    unit.close()
    for number, scan in enumerate(nest.scans):
        exclusive = "true" if scan.exclusive else "false"
        unit.add(f"ka_scan_{scan.kind}(scan{number}, n, carry{number}, {exclusive});")
    inner = _tile_loop(body, at)
    inner.names.update((id(scan), f"scan{number}[j]") for number, scan in enumerate(nest.scans))
    inner.write(after_scans(part, nest.scans), loads(unit, nest, (nest.reduced, "q")))
    tiles = {access.name: f"tile_{access.name}[j]" for access in through}
    stores(inner, part.stores, (nest.reduced, "q"), tiles=tiles)
    unit.close()
    for access in through:
        unit.add(f"ka_stream({access.name} + c, tile_{access.name}, n * sizeof({access.name}[0]));")
    unit.close()
    if through:
        unit.add("ka_stream_end();")


def _tile_loop(body: StatementWriter, at: str) -> StatementWriter:
    body.unit.add("#pragma omp simd")
    body.unit.open("for (int j = 0; j < n; ++j)")
    body.unit.add_if_used("q", at)
    return body.inner()
