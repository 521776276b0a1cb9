"""Maps the form of a schedule to the function that writes the kernel, for the CPU."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.print.cpu.across import emit_rows_across, emit_scan_across
from kernel_assistant.generator.print.cpu.blocked import emit_blocked
from kernel_assistant.generator.print.cpu.cols import emit_cols
from kernel_assistant.generator.print.cpu.cols_split import emit_split_cols
from kernel_assistant.generator.print.cpu.pointwise import emit_pointwise
from kernel_assistant.generator.print.cpu.rows import emit_rows
from kernel_assistant.generator.print.cpu.scan import emit_scan_rows
from kernel_assistant.generator.print.cpu.scan_cols import emit_scan_cols
from kernel_assistant.generator.print.cpu.split import emit_split
from kernel_assistant.generator.print.cpu.window import emit_window
from kernel_assistant.generator.print.render import KernelSource
from kernel_assistant.records import BufferSpec, Launch

WRITERS = {
    "pointwise": emit_pointwise,
    "pointwise/blocked": emit_blocked,
    "rows/keep": emit_rows,
    "rows/again": emit_rows,
    "rows/across": emit_rows_across,
    "scan/across": emit_scan_across,
    "cols/tile": emit_cols,
    "scan/rows": emit_scan_rows,
    "window": emit_window,
}
#: Writers that need scratch memory.
DIVIDED = {"rows/split": emit_split, "cols/split": emit_split_cols, "scan/cols": emit_scan_cols}

#: gcc takes two rows at once otherwise, and then reads both by gathers, four times as slowly.
ROW_BY_ROW = '__attribute__((optimize("no-loop-unroll-and-jam"))) '


def form_fits(nest: LoopNest, form: str) -> bool:
    """Whether kernels of a schedule's `form`, such as `rows/reg`, compute loop nests of the family of `nest`:
    pointwise, rows, cols, scan or window. Both targets use this."""
    family, _, kind = form.partition("/")
    if family != nest.family:
        return False
    return family != "scan" or (kind == "cols") == bool(nest.inner)


def reads_rows(nest: LoopNest) -> bool:
    """Whether the nest is a column reduction that loads at computed positions, such as a sum of gathered rows."""
    computed = any(access.terms for access in nest.loads.values())
    return nest.family == "cols" and computed


def emit_cpu(nest: LoopNest, schedule: Schedule) -> tuple[list[KernelSource], list[Launch], tuple[BufferSpec, ...]]:
    if not form_fits(nest, schedule.form):
        raise Unsupported(f"schedule {schedule.form} for a {nest.family} nest")
    scratch: tuple[BufferSpec, ...] = ()
    if schedule.form in DIVIDED:
        unit, scratch = DIVIDED[schedule.form](nest, schedule)
    else:
        unit = WRITERS[schedule.form](nest, schedule)
    unit.finish(bounds=ROW_BY_ROW if reads_rows(nest) else "")
    return [unit], [unit.launch()], scratch
