"""Schedules for linear layers of few rows. CUDA; docs/language_models.md."""

from __future__ import annotations

import math
from random import Random

from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.loops.linears import Linears
from kernel_assistant.generator.print.cuda.templates.linears import STEP, Split, possible, tiles
from kernel_assistant.targets.base import DeviceFacts

#: Warps of a multiprocessor that together keep memory busy, and loads in flight of each.
WARPS, LOADS = 24, 4
MOST = 12


def initial_linears(found: Linears, device: DeviceFacts) -> list[Schedule]:
    """Schedules that can be launched, those first that keep memory busy."""
    blocks = max(1, sum(tiles(found)))

    def distance(one: Split) -> float:
        warps = blocks * one.warps / (max(device.cores, 1) * WARPS)
        wanted = min(LOADS, max(1, one.share // STEP))
        off = abs(math.log2(warps)) * (1 if warps < 1 else 0.5) + abs(math.log2(one.unroll / wanted)) / 2
        return off + one.stages / 8  # not measured

    return [_schedule(one) for one in sorted(possible(found), key=distance)[:MOST]]


def neighbours_linears(found: Linears, schedule: Schedule, leave: frozenset[str]) -> list[Schedule]:
    """The possible schedules that differ in one parameter, but for those in `leave`."""
    around = []
    for other in map(_schedule, possible(found)):
        changed = [name for name in ("stages", "unroll", "warps") if other[name] != schedule[name]]
        if len(changed) == 1 and changed[0] not in leave:
            around.append(other)
    return around


def drawn_linears(found: Linears, random: Random, count: int) -> list[Schedule]:
    """At most `count` of the possible schedules by lot."""
    some = [_schedule(one) for one in possible(found)]
    return random.sample(some, min(count, len(some)))


def _schedule(one: Split) -> Schedule:
    return make("cuda", "linears", stages=one.stages, unroll=one.unroll, warps=one.warps)
