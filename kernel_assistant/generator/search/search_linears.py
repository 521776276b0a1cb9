"""Chooses schedules for linear layers of few rows. CUDA only; see docs/language_models.md."""

from __future__ import annotations

import math

from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.loops.linears import Linears
from kernel_assistant.generator.print.cuda.templates.linears import STEP, Split, possible, tiles
from kernel_assistant.targets.base import DeviceFacts

#: Warps of a multiprocessor that together keep memory busy, and loads in flight of each.
WARPS, LOADS = 24, 4


def possible_linears(linears: Linears, device: DeviceFacts) -> list[tuple[float, Schedule]]:
    """Returns (score, schedule) for all schedules whose kernels can be launched. The score estimates how far a schedule
    is from keeping memory busy; smaller is better.
    """
    blocks = max(1, sum(tiles(linears)))

    def distance(one: Split) -> float:
        warps = blocks * one.warps / (max(device.cores, 1) * WARPS)
        wanted = min(LOADS, max(1, one.share // STEP))
        off = abs(math.log2(warps)) * (1 if warps < 1 else 0.5) + abs(math.log2(one.unroll / wanted)) / 2
        return off + one.stages / 8  # not measured

    return [
        (distance(one), make("cuda", "linears", stages=one.stages, unroll=one.unroll, warps=one.warps))
        for one in possible(linears)
    ]
