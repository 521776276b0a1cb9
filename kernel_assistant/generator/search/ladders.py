"""Defines for each parameter of a schedule its ladder, the increasing values that a search tries. Also computes
parameters that follow from others."""

from __future__ import annotations

from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.search.workload import LoopShape

_BLOCKS = (64, 128, 256, 512, 1024)
_NT = (0, 1)

#: Per target and form: parameter → values in order. What is not here follows from the rest.
LADDERS: dict[str, dict[str, dict[str, tuple[int, ...]]]] = {
    "cpu": {
        "pointwise": {"nt": _NT, "tile": (1024, 4096, 16384)},
        "pointwise/blocked": {"tile": (16, 32, 64, 128)},
        "rows/keep": {"nt": _NT, "lanes": (32, 64, 128)},
        "rows/again": {"nt": _NT, "lanes": (32, 64, 128)},
        "rows/across": {"tile": (16, 32, 64, 256)},
        "scan/across": {"tile": (16, 32, 64, 256)},
        "rows/split": {"nt": _NT, "chunk": (16384, 65536, 262144), "lanes": (32, 64, 128)},
        "cols/tile": {"nt": _NT, "tile": (8, 16, 32, 64, 128, 256, 512, 1024)},
        "scan/rows": {"nt": _NT, "tile": (256, 512, 1024, 4096)},
        "cols/split": {"nt": _NT, "chunk": (1024, 4096, 16384, 65536), "tile": (16, 64, 256)},
        "scan/cols": {"nt": _NT, "tile": (64, 256, 1024), "chunk": (1024, 4096, 16384, 65536)},
        "window": {"stage": (0, 1), "tile": (128, 256, 512, 1024, 4096)},
    },
    "cuda": {
        "pointwise": {"hint": _NT, "unroll": (1, 2, 4), "block": (128, 256, 512, 1024), "vec": (1, 2, 4, 8)},
        "pointwise/transpose": {
            "tile": (16, 32, 64),
            "block": (128, 256, 512),
            "vec": (1, 2, 4, 8),
            "put": (1, 2, 4, 8),
        },
        "rows/warp": {"lanes": (4, 8, 16, 32), "block": (64, 128, 256, 512), "vec": (1, 2, 4, 8), "hint": _NT},
        "rows/reg": {"block": _BLOCKS, "cluster": (1, 2, 4, 8, 16), "hint": _NT, "vec": (1, 2, 4, 8)},
        "rows/shared": {
            "block": _BLOCKS,
            "cluster": (1, 2, 4, 8, 16),
            "joint": _NT,
            "stage": _NT,
            "unroll": (1, 2, 4, 8),
            "hint": _NT,
        },
        "rows/stream": {"block": _BLOCKS, "cluster": (1, 2, 4, 8, 16), "unroll": (1, 2, 4, 8), "hint": _NT},
        "rows/split": {
            "parts": (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
            "block": _BLOCKS,
            "unroll": (1, 2, 4, 8),
            "join": _NT,
            "hint": _NT,
        },
        "rows/team": {
            "held": (0, 2, 4, 8, 16),
            "parts": (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256),
            "block": _BLOCKS,
            "stage": _NT,
            "hint": _NT,
            "unroll": (1, 2, 4, 8),
        },
        "cols/reg": {"tx": (8, 16, 32, 64, 128), "ty": (1, 2, 4, 8, 16, 32), "vec": (1, 2, 4, 8), "hint": _NT},
        "cols/stream": {
            "tx": (8, 16, 32, 64, 128),
            "ty": (1, 2, 4, 8, 16, 32),
            "unroll": (2, 4, 8, 16),
            "vec": (1, 2, 4, 8),
            "hint": _NT,
        },
        "cols/split": {
            "parts": (4, 8, 16, 32, 64, 128, 256, 512, 1024),
            "ty": (4, 8, 16, 32, 64, 128, 256),
            "unroll": (2, 4, 8, 16),
            "vec": (1, 2, 4),
            "hint": _NT,
        },
        "scan/rows": {"block": (64, 128, 256, 512, 1024), "items": (1, 2, 4, 8), "vec": (1, 2, 4, 8), "hint": _NT},
        "scan/split": {
            "block": (128, 256, 512),
            "items": (1, 2, 4, 8),
            "parts": (16, 32, 64, 128, 256, 512, 1024),
            "vec": (1, 2, 4, 8),
            "hint": _NT,
        },
        "scan/thread": {"block": (64, 128, 256), "vec": (1, 2, 4, 8), "hint": _NT},
        "scan/cols": {
            "block": (32, 64, 128, 256),
            "chunk": (16, 32, 64, 128, 256),
            "join": (32, 256, 1024),
            "unroll": (4, 8, 16, 32),
            "hint": _NT,
        },
        "window/direct": {"rows": (1, 2, 4, 8, 16), "block": (64, 128, 256, 512)},
        "window/shared": {"rows": (1, 2, 4, 8, 16), "block": (64, 128, 256, 512), "unroll": (1, 2, 4)},
        "window/strip": {
            "strip": (2, 4, 8, 16),
            "rows": (1, 2, 4, 8),
            "stage": (0, 1),
            "block": (32, 64, 128, 256, 512),
        },
    },
}

#: Elements of a column that a thread may have where there are fewer threads than keep a device busy.
MOST_ELEMENTS, ENOUGH_THREADS = 512, 64 * 132

#: Most threads that combine the totals of chunks.
MOST_JOINING = 1 << 20

#: Most values of a row that a thread may hold in registers: 65,536 registers a block, some of them for the rest.
MOST_VALUES = {1024: 32, 512: 64}


#: Largest value of a parameter that has no ladder.
MOST_DERIVED = 1024


def is_reasonable(schedule: Schedule) -> bool:
    """Whether each parameter is at most twice the largest value that a search tries: with larger values it takes long
    to write the kernel.
    """
    if schedule.parts:
        return all(map(is_reasonable, schedule.parts))
    ladders = LADDERS[schedule.target].get(schedule.form, {})
    return all(value <= 2 * max(ladders.get(name, (MOST_DERIVED,))) for name, value in schedule.params)


def derived(shape: LoopShape, schedule: Schedule) -> Schedule | None:
    """Returns the schedule; if its form has `items` (vectors that a thread keeps in registers), with `items` computed
    from the sizes and the other parameters. None if the sizes need more registers than there are, or if the kernel
    would have too few or too many threads. CPU schedules are returned unchanged.
    """
    if schedule.target == "cpu":
        return schedule
    if schedule.form in ("rows/warp", "rows/reg"):
        return _row_items(shape, schedule)
    if schedule.form == "cols/reg":
        items = -(-shape.reduced // schedule["ty"])
        if items * schedule["vec"] * max(shape.kept, 1) > 128:
            return None
        schedule = schedule.having(items=items)
    if "tx" in dict(schedule.params) and not 32 <= schedule["tx"] * schedule["ty"] <= 1024:
        return None
    if schedule.form in ("cols/reg", "cols/stream") and not _fills(shape, schedule):
        return None
    if schedule.form == "scan/cols" and schedule["chunk"]:
        # Of many columns, each with few chunks, a block for each column would have nothing to combine.
        chunks = shape.reduced / schedule["chunk"]
        fits = chunks >= 2 and shape.outer * shape.inner * schedule["join"] <= MOST_JOINING
        return schedule if fits else None
    if schedule.form == "scan/rows" and shape.passes == 1:
        threads = schedule["block"] * shape.outer
        if threads < min(shape.outer * shape.reduced // MOST_ELEMENTS, ENOUGH_THREADS):
            return None
    if schedule.form in ("scan/rows", "scan/split") and schedule["block"] * schedule["items"] > 1024:
        return None
    return schedule


def _fills(shape: LoopShape, schedule: Schedule) -> bool:
    """Whether the blocks have enough threads to keep the device busy: one for each MOST_ELEMENTS elements, or at least
    ENOUGH_THREADS.
    """
    width, columns = schedule["tx"] * schedule["vec"], shape.inner * (shape.outer if schedule["flat"] else 1)
    blocks = -(-columns // width) * (1 if schedule["flat"] else shape.outer)
    elements = shape.outer * shape.reduced * shape.inner
    return blocks * schedule["tx"] * schedule["ty"] >= min(elements // MOST_ELEMENTS, ENOUGH_THREADS)


def _row_items(shape: LoopShape, schedule: Schedule) -> Schedule | None:
    vec, warp = schedule["vec"], schedule.form == "rows/warp"
    threads = schedule["lanes"] if warp else schedule["block"] * schedule["cluster"]
    items = -(-(shape.reduced + (vec - 1 if shape.shifted else 0)) // (threads * vec))
    values = items * vec * max(shape.kept, 1)
    if not shape.static or values > MOST_VALUES.get(0 if warp else schedule["block"], 64):
        return None
    return schedule.having(items=items)
