"""Chooses the first schedules for the CPU."""

from __future__ import annotations

from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.search.workload import LoopShape
from kernel_assistant.targets.base import DeviceFacts

#: Rows up to this are shorter than the lanes of a loop along them.
SHORT_ROW = 64


def initial_cpu(shape: LoopShape, device: DeviceFacts) -> list[Schedule]:
    """Returns the first schedules to try, best guess first. Schedules with streaming stores are first if the outputs
    are too large to stay in cache."""
    nt = int(shape.written_bytes > max(device.cache_bytes, 1 << 22) // 2)
    if shape.family == "pointwise":
        # Where no load runs across the stores, the blocked form does not fit and is left out.
        return [
            make("cpu", "pointwise/blocked"),
            make("cpu", "pointwise", nt=nt),
            make("cpu", "pointwise", nt=1 - nt),
            make("cpu", "pointwise", nt=nt, tile=16384),
        ]
    if shape.family == "window":
        return [make("cpu", "window"), make("cpu", "window", stage=1), make("cpu", "window", tile=256)]
    if shape.family == "rows":
        return _rows(shape, device, nt)
    if shape.family == "cols":
        return _cols(shape, device, nt)
    if shape.inner > 1:
        whole = [make("cpu", "scan/cols", nt=nt), make("cpu", "scan/cols", nt=nt, tile=64)]
        chunks = [make("cpu", "scan/cols", nt=nt, chunk=size) for size in _chunks(shape, device, 256)]
        return [*chunks, *whole]
    rows = [
        make("cpu", "scan/rows", nt=nt),
        make("cpu", "scan/rows", nt=nt, tile=2048),
        make("cpu", "scan/rows", nt=1 - nt),
    ]
    return rows if shape.passes > 1 else _across(shape, "scan/across", rows)


def _cols(shape: LoopShape, device: DeviceFacts, nt: int) -> list[Schedule]:
    # Few columns: small tiles, so that every thread has some; if there are too few even so, chunks of rows.
    tasks = 4 * max(device.threads, 1)
    tile = 256
    while tile > 32 and shape.outer * -(-shape.inner // tile) < tasks:
        tile //= 2
    # A tile's totals are set and added as a whole, however few columns there are.
    width = max(1 << (shape.inner - 1).bit_length(), 8)
    whole = [make("cpu", "cols/tile", nt=nt, tile=min(size, width)) for size in (tile, 1024, 64)]
    chunks = [
        make("cpu", "cols/split", nt=nt, chunk=size, tile=min(256, width)) for size in _chunks(shape, device, 256)
    ]
    return [*chunks, *whole]


def _chunks(shape: LoopShape, device: DeviceFacts, tile: int) -> list[int]:
    """Returns the chunk sizes to try, in rows. Empty unless there are many rows, and fewer tiles of columns than CPU
    threads."""
    threads, tiles = max(device.threads, 1), shape.outer * -(-shape.inner // tile)
    if tiles >= threads or shape.reduced < 8192:
        return []
    rows = max(1 << (shape.reduced * tiles // (4 * threads)).bit_length() - 1, 1024)
    return list(dict.fromkeys((rows, 4 * rows if 4 * rows < shape.reduced else rows)))


def _across(shape: LoopShape, form: str, others: list[Schedule]) -> list[Schedule]:
    """Returns schedules of `form` that compute several short rows together, one in each SIMD lane, because SIMD lanes
    along rows of a few elements take ten times as long. If rows are not very short, `others` follow; if rows are few or
    long, returns only `others`.
    """
    if shape.reduced > SHORT_ROW or shape.outer < 8 * SHORT_ROW:
        return others
    schedules = [make("cpu", form, tile=tile) for tile in (64, 256, 16)]
    return schedules if shape.reduced <= SHORT_ROW // 4 else [*schedules, *others]


def _rows(shape: LoopShape, device: DeviceFacts, nt: int) -> list[Schedule]:
    forms = ["rows/keep", "rows/again"] if shape.costly else ["rows/again"]
    schedules = [make("cpu", form, nt=value) for form in forms for value in (nt, 1 - nt)]
    if shape.reduced <= SHORT_ROW:
        return _across(shape, "rows/across", schedules)
    split = [make("cpu", "rows/split", nt=nt), make("cpu", "rows/split", nt=nt, chunk=16384)]
    if shape.outer < 2 * max(device.threads, 1) and shape.reduced >= 65536:
        return split + schedules
    return schedules
