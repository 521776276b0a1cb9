"""Maps the form of a schedule to the function that writes the kernel, for CUDA."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.print.cpu.family import form_fits
from kernel_assistant.generator.print.cuda.blocks_per_row import emit_team
from kernel_assistant.generator.print.cuda.cols import emit_cols
from kernel_assistant.generator.print.cuda.pointwise import emit_pointwise
from kernel_assistant.generator.print.cuda.rows import emit_rows
from kernel_assistant.generator.print.cuda.scans.rows import emit_scan_rows
from kernel_assistant.generator.print.cuda.scans.split import emit_scan_split
from kernel_assistant.generator.print.cuda.scans.threads import emit_scan_cols, emit_scan_thread
from kernel_assistant.generator.print.cuda.split import Emitted, emit_split_cols, emit_split_rows
from kernel_assistant.generator.print.cuda.transpose import emit_transpose
from kernel_assistant.generator.print.cuda.window import emit_direct
from kernel_assistant.generator.print.cuda.window_shared import emit_shared
from kernel_assistant.generator.print.cuda.window_strip import emit_strip

SINGLE = {
    "pointwise": emit_pointwise,
    "pointwise/transpose": emit_transpose,
    "rows/warp": emit_rows,
    "rows/reg": emit_rows,
    "rows/shared": emit_rows,
    "rows/stream": emit_rows,
    "cols/reg": emit_cols,
    "cols/stream": emit_cols,
    "scan/rows": emit_scan_rows,
    "scan/thread": emit_scan_thread,
    "window/direct": emit_direct,
    "window/shared": emit_shared,
    "window/strip": emit_strip,
}
SEVERAL = {
    "rows/split": emit_split_rows,
    "rows/team": emit_team,
    "cols/split": emit_split_cols,
    "scan/cols": emit_scan_cols,
    "scan/split": emit_scan_split,
}

#: What each parameter may be; 0 where any positive value will do.
ALLOWED = {
    "vec": (1, 2, 4, 8, 16),
    "cluster": (1, 2, 4, 8, 16),
    "block": (32, 64, 128, 256, 512, 1024),
    "tx": (1, 2, 4, 8, 16, 32, 64, 128, 256),
    "ty": (1, 2, 4, 8, 16, 32, 64, 128, 256),
    "hint": (0, 1),
    "lanes": (4, 8, 16, 32),
    "joint": (0, 1),
    "stage": (0, 1),
    "strip": (2, 4, 8, 16),
    "join": (0, 1, 32, 256, 1024),
    "flat": (0, 1),
    "chunk": (0, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    "held": (0, 1, 2, 4, 6, 8, 12, 16),
}


def emit_cuda(nest: LoopNest, schedule: Schedule) -> Emitted:
    if not form_fits(nest, schedule.form):
        raise Unsupported(f"schedule {schedule.form} for a {nest.family} nest")
    for name, value in schedule.params:
        if not (value in ALLOWED[name] if name in ALLOWED else value > 0):
            raise Unsupported(f"{name}={value}")
    if "tx" in dict(schedule.params) and not 32 <= schedule["tx"] * schedule["ty"] <= 1024:
        raise Unsupported("a block has 32 to 1024 threads")
    if "join" in dict(schedule.params) and (schedule["join"] > 1) != (schedule.form == "scan/cols"):
        raise Unsupported(f"join={schedule['join']}")
    if schedule.form in SEVERAL:
        return SEVERAL[schedule.form](nest, schedule)
    unit, launch = SINGLE[schedule.form](nest, schedule)
    return [unit], [launch], ()
