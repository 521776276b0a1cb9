"""Chooses the first schedules of scans for NVIDIA GPUs, by the number and the length of rows or columns."""

from __future__ import annotations

from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.search.ladders import derived
from kernel_assistant.generator.search.workload import LoopShape
from kernel_assistant.targets.base import DeviceFacts

#: Threads of each processor that keep it busy with chunks of columns; those that are enough where each has a column,
#: since chunks are read twice; and those below which a thread for each column is ten times slower than chunks.
BUSY, ENOUGH, IDLE = 1024, 256, 64
#: Columns of up to MEDIUM rows are read once, a column for each thread, from SOME threads for each processor on.
MEDIUM, SOME = 512, 120
#: Rows of a chunk: enough that the totals of the chunks cost little.
FEWEST, MOST = 32, 256
#: Shorter columns are not divided.
LONG_COLUMN = 64
#: Rows up to this are tried as a thread's, too; up to a quarter of it a block for each row is ten times slower.
SHORT_ROW = 128
#: Rows from this length on, and those without vectors, are tried as a block's first.
LONG_ROW = 64
#: Values that a thread of a block has in a tile.
VALUES = 8
#: Elements of a row for each part: whole tiles of a block.
PART = 4096


def scans(shape: LoopShape, device: DeviceFacts) -> list[Schedule]:
    """Returns the first schedules of a prefix scan (cumulative sum, product or extreme) to try, best guess first. Those
    that would leave most of the device idle are left out."""
    cores = max(device.cores, 1)
    return _columns(shape, cores) if shape.inner > 1 else _rows(shape, cores)


def _columns(shape: LoopShape, cores: int) -> list[Schedule]:
    columns = shape.outer * shape.inner
    whole = [
        make("cuda", "scan/cols", block=block, unroll=unroll)
        for block, unroll in ((128, 8), (64, 16), (256, 8), (32, 16))
    ]
    if shape.reduced >= LONG_COLUMN:
        whole = [*whole[-1:], *whole[:-1]]
    else:
        rows = next((rows for rows in (16, 8) if rows <= shape.reduced), 4)
        whole = [make("cuda", "scan/cols", block=128, unroll=rows), *whole]
    medium = shape.reduced <= MEDIUM and columns >= SOME * cores
    if columns >= ENOUGH * cores or shape.reduced < LONG_COLUMN or medium:
        return whole
    chunk = FEWEST
    while chunk < MOST and columns * shape.reduced > 2 * chunk * BUSY * cores:
        chunk *= 2
    pairs = ((chunk, 8), (chunk, 16), (2 * chunk, 8), (2 * chunk, 16), (max(chunk // 2, FEWEST), 8))
    divided = [
        make("cuda", "scan/cols", chunk=rows, join=_joining(shape.reduced // rows), unroll=unroll)
        for rows, unroll in dict.fromkeys(pairs)
    ]
    hopeless = columns < IDLE * cores and shape.reduced >= 8 * LONG_COLUMN
    return divided if hopeless else [*divided, *whole]


def _joining(chunks: int) -> int:
    """Returns the number of threads of the block that combines the totals of `chunks` chunks of a column."""
    return 32 if chunks <= 128 else 256 if chunks <= 2048 else 1024


def _rows(shape: LoopShape, cores: int) -> list[Schedule]:
    if shape.passes > 1:
        return _blocks(shape)
    if shape.reduced <= SHORT_ROW and shape.outer >= BUSY * cores // 16:
        # Eight values at a time, if they divide the row.
        vec = next(width for width in (8, 4, 2, 1) if shape.reduced % width == 0) if shape.static else 1
        least = min(vec, shape.vec)
        pairs = ((128, vec), (128, least), (256, vec), (64, vec), (64, least), (128, 1))
        threads = [make("cuda", "scan/thread", block=block, vec=width) for block, width in dict.fromkeys(pairs)]
        if shape.reduced <= SHORT_ROW // 4:
            return threads
        return [*threads, *_blocks(shape)] if vec > 1 and shape.reduced < LONG_ROW else [*_blocks(shape), *threads]
    if shape.outer >= 2 * cores or shape.reduced < 4 * PART:
        return _blocks(shape)
    parts = 2
    while parts * shape.outer < 4 * cores and 2 * parts * PART <= shape.reduced:
        parts *= 2
    triples = ((parts, 256, 4), (parts, 512, 2), (max(parts // 2, 2), 256, 4), (parts, 256, 2), (2 * parts, 256, 2))
    vec = _vec(shape)
    divided = [
        make("cuda", "scan/split", parts=count, block=block, items=items, vec=vec) for count, block, items in triples
    ]
    hopeless = shape.outer < cores // 8 and shape.reduced >= 16 * PART
    return divided if hopeless else [*divided, *(one for one in _blocks(shape) if derived(shape, one) is not None)]


def _vec(shape: LoopShape) -> int:
    return shape.vec if not shape.reverse or shape.reduced % shape.vec == 0 else 1


def _blocks(shape: LoopShape) -> list[Schedule]:
    """Returns schedules in which a block scans each row."""
    vec = _vec(shape)
    pairs = ((256, 4), (256, 2), (512, 2), (128, 4), (128, 8), (1024, 1), (512, 1), (256, 1), (64, 4), (128, 2))
    useful = [
        (b, n)
        for b, n in pairs
        if (b * vec <= shape.reduced or b == 64) and (b * n * vec <= 2 * shape.reduced or n == 1)
    ]
    blocks = [make("cuda", "scan/rows", block=b, items=n, vec=vec) for b, n in useful or [(64, 1)]]
    return [*_one_tile(shape, vec), *blocks]


def _one_tile(shape: LoopShape, vec: int) -> list[Schedule]:
    """Returns the schedule whose blocks of 64 to 256 threads hold a row in one tile, with VALUES values for each
    thread, fewer if 64 threads suffice; none for longer rows."""
    while vec > 1 and 32 * vec >= shape.reduced:
        vec //= 2
    items = 1 if 64 * vec >= shape.reduced else max(VALUES // vec, 1)
    fitting = [block for block in (64, 128, 256) if block * items * vec >= shape.reduced and block * items <= 1024]
    return [make("cuda", "scan/rows", block=block, items=items, vec=vec) for block in fitting[:1]]
