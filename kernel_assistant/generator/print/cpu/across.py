"""Writes reductions and scans of many short rows for the CPU. The rows of a tile are computed together, one row in each
SIMD lane, as if they were columns; loads are therefore strided.
"""

from __future__ import annotations

from dataclasses import replace

from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.print.cpu.cols import emit_cols
from kernel_assistant.generator.print.cpu.scan_cols import emit_scan_whole
from kernel_assistant.generator.print.render import KernelSource


def emit_rows_across(nest: LoopNest, schedule: Schedule) -> KernelSource:
    return emit_cols(_turned(nest), schedule)


def emit_scan_across(nest: LoopNest, schedule: Schedule) -> KernelSource:
    return emit_scan_whole(_turned(nest), schedule["tile"])


def _turned(nest: LoopNest) -> LoopNest:
    """Returns a copy of the nest whose outer loops, which count the rows, are its inner loops, so that a writer for
    columns handles each row as a column."""
    return replace(nest, outer=[], inner=nest.outer)
