"""Chooses the first schedules for NVIDIA GPUs."""

from __future__ import annotations

from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.search.clusters import clusters_of
from kernel_assistant.generator.search.ladders import derived
from kernel_assistant.generator.search.search_scan import scans
from kernel_assistant.generator.search.search_team import long_rows
from kernel_assistant.generator.search.workload import LoopShape
from kernel_assistant.targets.base import DeviceFacts

#: Values that a thread holds best: enough loads in flight, registers for many threads.
GOOD_VALUES = 16
#: Rows of this size go to teams of blocks before they go to clusters.
TEAM_BYTES = 1 << 20
#: Rows up to this are never a block's where there are many: most of its threads would have nothing to do.
SHORT_ROW = 128
#: From this many rows on, a few columns are work for a block.
LONG_COLUMN = 48
#: Columns of so few rows are shared by four threads, not by eight; longer ones too, if they are read again and their
#: values are in the second-level cache.
SHORT_COLUMN, MEDIUM_COLUMN = 64, 96
#: A column reduction that reads up to so many bytes has its values in the second-level cache.
CACHED_BYTES = 32 << 20
#: Windows of fewer outputs have a thread for each output. From LONG_STRIPS threads on, strips are whole vectors long,
#: below it half as long.
STRIPS, LONG_STRIPS = 500_000, 2_000_000
#: Windows of so many positions that share none have a thread for each output, however many they are: neighbouring
#: threads of strips would read far apart.
LARGE_WINDOW = 16
#: If at least so many neighbouring windows read an element, strips have two rows of outputs, or four, so that a thread
#: reads it once for all; windows of one dimension take the next strips, of one row. Between the two numbers of
#: `LITTLE_SHARED`, strips are whole vectors long.
SHARED, MUCH_SHARED, LITTLE_SHARED = 8.0, 10.0, (4.0, 6.0)
#: Rows of fewer elements are turned through shared memory only after a plain copy was tried: most of a tile would be
#: empty. Up to the second number, tiles of 32 are tried before those of 64.
SHORT_TILE, SMALL_TILE = 26, 32
#: Rows from this length on are blocks' if there are too few for a warp each.
LONG_WARP_ROW = 512
#: Parts of a row that are joined in a launch of their own: large enough that joining costs nothing, small enough that
#: the last wave of blocks is a small share.
PART_BYTES = 256 << 10


def initial_cuda(shape: LoopShape, device: DeviceFacts) -> list[Schedule]:
    if shape.family == "pointwise":
        return _pointwise(shape)
    if shape.family == "window":
        return _window(shape)
    if shape.family == "rows":
        return _rows(shape, device)
    if shape.family == "cols":
        return _cols(shape, device)
    return scans(shape, device)


def _window(shape: LoopShape) -> list[Schedule]:
    """Returns the first schedules for windows (poolings, depthwise convolutions): strips of neighbouring outputs in
    vectors, or one output of a row for each thread, in blocks that fit the rows of outputs. Few outputs, and those of
    large windows that share nothing, are a thread each (`STRIPS`, `LARGE_WINDOW`).
    """
    filled = {block: shape.inner / (-(-shape.inner // block) * block) for block in (256, 128, 64)}
    fit = next((block for block, share in filled.items() if share >= 0.8), max(filled, key=filled.__getitem__))
    pairs = ((fit, 1), (fit, 4), (fit, 8), (fit, 2), (256, 1), (256, 4), (128, 1))
    staged = ((fit, 1, 1), (fit, 1, 4), (fit, 4, 1), (64, 1, 2), (fit, 8, 2))
    direct = [make("cuda", "window/direct", block=block, rows=rows) for block, rows in pairs]
    shared = [make("cuda", "window/shared", block=block, rows=rows, unroll=unroll) for block, rows, unroll in staged]
    apart = shape.overlap <= 1 and shape.positions >= LARGE_WINDOW
    first = apart or shape.outer * shape.inner < STRIPS
    alone = [make("cuda", "window/direct", block=128, rows=1)] if first else []
    return [*alone, *_strips(shape), *direct, *shared]


def _strips(shape: LoopShape) -> list[Schedule]:
    """Returns schedules in which each thread computes a strip of neighbouring outputs in one or several rows. A strip
    is half a 16-byte vector to two vectors long; the input is read from memory or through shared memory.
    """
    outputs = shape.outer * shape.inner
    size = shape.written_bytes // max(outputs, 1)
    vec = max(min(16 // max(size, 1), 8), 2)
    half = max(vec // 2, 2)

    strips = [(vec, 1, 0), (vec, 2, 0), (vec, 4, 0), (vec, 1, 1), (2 * vec, 1, 0), (2 * vec, 1, 1), (vec // 2, 4, 0)]
    if shape.overlap >= MUCH_SHARED:
        strips = [(half, 4, 0), (vec, 4, 0), *strips]
    elif shape.overlap >= SHARED:
        strips = [(half, 2, 0), (half, 1, 0), *strips]
    elif outputs < LONG_STRIPS * vec and not LITTLE_SHARED[0] <= shape.overlap < LITTLE_SHARED[1]:
        strips = [(half, 1, 0), (half, 2, 0), *strips]
    return [make("cuda", "window/strip", rows=rows, stage=stage, strip=strip) for strip, rows, stage in strips]


def _pointwise(shape: LoopShape) -> list[Schedule]:
    make_one = [(256, 1, 0), (256, 2, 0), (256, 1, 1), (512, 1, 0), (256, 2, 1), (256, 4, 0), (128, 2, 0), (1024, 1, 0)]
    # Where no load runs across the stores, the transposing form does not fit and is left out.
    # The widest vectors that fit for the loads; those of the stores go through banks of shared memory, where eight
    # bytes were a fifth to a third faster than sixteen on an H200.
    widths = [(8, 4), (8, 2), (4, 2), (4, 1), (8, 8), (1, 2), (1, 4), (4, 4), (2, 2), (8, 1), (2, 1), (1, 1)]
    across = [
        make("cuda", "pointwise/transpose", tile=tile, vec=vec, put=put)
        for vec, put in widths
        for tile in ((32, 64) if shape.inner <= SMALL_TILE else (64, 32))
    ]
    # Vectors in rows that they do not divide are taken apart at each end: shorter ones waste less. Without vectors, a
    # thread still computes two neighbours.
    vec = min(shape.vec, 4) if shape.inner % shape.vec else max(shape.vec, 2)
    plain = [make("cuda", "pointwise", block=b, unroll=u, hint=h, vec=vec) for b, u, h in make_one]
    return [*plain[:1], *across, *plain[1:]] if shape.inner < SHORT_TILE else [*across, *plain]


def _rows(shape: LoopShape, device: DeviceFacts) -> list[Schedule]:
    cores = max(device.cores, 1)
    if shape.reduced <= SHORT_ROW and shape.outer >= 16 * cores and (short := _warp_rows(shape)):
        return short
    schedules = _safe_first([*_register_rows(shape, cores), *_shared_rows(shape, device), *_stream_rows(shape)])
    kept = long_rows(shape, device)
    few = 0 < 16 * shape.outer < cores and shape.reduced >= 1 << 18
    many = shape.outer < 2 * cores and shape.outer * shape.reduced > 1 << 20
    if few or many:
        split = _split_rows(shape, cores)
        if few:
            # A block or a cluster for each row would leave most of the device without work; it is tried last.
            return [split[0], *kept, *split[1:], *([] if many else schedules)]
        return [split[0], *_resident(shape, device), *kept, *split[1:], *schedules]
    # Where a row fills many blocks, teams come before clusters; a few blocks meet sooner in a cluster.
    ahead, count = (1, len(kept)) if shape.reduced * shape.copied_bytes >= TEAM_BYTES else (6, 2)
    return [*schedules[:ahead], *kept[:count], *schedules[ahead:], *kept[count:]]


def _resident(shape: LoopShape, device: DeviceFacts) -> list[Schedule]:
    """Returns the schedule that keeps rows of several passes in registers, of clusters where the GPU has them, if the
    rows fill a quarter of the device: on an H200 it is up to twice as fast as parts of rows that are read again. Empty
    if there is none.
    """
    cores = max(device.cores, 1)
    if shape.passes < 2 or 4 * shape.outer < cores:
        return []
    sizes = clusters_of(device)
    return [one for one in _register_rows(shape, cores) if dict(one.params).get("cluster", 1) in sizes][:1]


def _split_rows(shape: LoopShape, cores: int) -> list[Schedule]:
    """Returns schedules in which several thread blocks share each row, because there are too few rows to fill the
    device, which has `cores` multiprocessors. If rows are long enough, those with many blocks that read PART_BYTES each
    come first, and one has 16 blocks for each multiprocessor; the first of the others has four to eight.
    """
    wanted = max(8 * cores // shape.outer, 2)
    parts, most = 1 << (wanted.bit_length() - 1), 1 << (wanted - 1).bit_length()
    while parts > 2 and parts * 512 * shape.vec > shape.reduced:
        parts //= 2
    many = min(shape.reduced * shape.row_bytes // PART_BYTES, 16384)
    joined, waves = [], []
    if many > most:
        joined = [
            make("cuda", "rows/split", parts=many, block=block, unroll=unroll, hint=hint, join=1, vec=shape.vec)
            for block, unroll, hint in ((512, 4, 0), (256, 4, 1), (512, 2, 0), (256, 4, 0), (256, 8, 1), (256, 2, 0))
        ]
        count = max(16 * cores // shape.outer, 2)
        waves = [make("cuda", "rows/split", parts=count, block=256, unroll=4, vec=shape.vec)] if count <= 4096 else []
    pieces = [count for count in (parts, parts // 2, parts * 2) if 2 <= count <= 4096]
    split = [make("cuda", "rows/split", parts=count, unroll=u, vec=shape.vec) for count in pieces for u in (2, 4)]
    return [*joined, *split[:1], *waves, *split[1:]]


def _safe_first(schedules: list[Schedule]) -> list[Schedule]:
    """Returns the schedules, with the first one without clusters moved to the front, because every GPU can run it."""
    alone = next((schedule for schedule in schedules if dict(schedule.params).get("cluster", 1) == 1), schedules[0])
    return [alone, *(schedule for schedule in schedules if schedule != alone)]


def _register_rows(shape: LoopShape, cores: int) -> list[Schedule]:
    """Returns schedules that keep rows in registers. Those with about GOOD_VALUES values for each thread come first,
    and small clusters before large ones. The device has `cores` multiprocessors.
    """
    scored: list[tuple[float, Schedule]] = []
    for block in (64, 128, 256, 512, 1024):
        for cluster in (1, 2, 4, 8, 16):
            schedule = derived(shape, make("cuda", "rows/reg", block=block, cluster=cluster, vec=shape.vec))
            if schedule is None:
                continue
            values = schedule["items"] * shape.vec * max(shape.kept, 1)
            idle = block * cluster * shape.vec > 2 * shape.reduced and block > 64
            score = (
                abs(values - GOOD_VALUES) / GOOD_VALUES + cluster.bit_length() * 0.5 + 4 * idle + (block == 1024) * 0.3
            )
            scored.append((score, schedule))
    ranked = [schedule for _, schedule in sorted(scored, key=lambda item: item[0])[:6]]
    if shape.reduced > 1024:
        return ranked
    # A warp for each row needs many rows.
    first = ranked[:1] if shape.reduced >= LONG_WARP_ROW and shape.outer < 16 * cores else []
    return list(dict.fromkeys([*first, *_warp_rows(shape), *ranked]))


def _warp_rows(shape: LoopShape) -> list[Schedule]:
    """Returns schedules in which a warp, or part of one, handles a row. Those with about GOOD_VALUES values for each
    thread, few idle threads and wide vectors come first.
    """
    scored: list[tuple[float, Schedule]] = []
    for width in dict.fromkeys((shape.vec, max(shape.vec // 2, 1))):
        for lanes in (32, 16, 8, 4):
            schedule = derived(shape, make("cuda", "rows/warp", lanes=lanes, vec=width))
            if schedule is not None:
                room = schedule["items"] * width
                used = shape.reduced / (room * lanes)
                off = abs(room * max(shape.kept, 1) - GOOD_VALUES) / GOOD_VALUES
                scored.append((off + 4 * (1 - used) + (width != shape.vec) * 0.3, schedule))
    best = [schedule for _, schedule in sorted(scored, key=lambda item: item[0])[:3]]
    whole = derived(shape, make("cuda", "rows/warp", vec=shape.vec))
    return [*best, *([whole] if whole else []), *(schedule.having(block=128) for schedule in best[:1])]


def _shared_rows(shape: LoopShape, device: DeviceFacts) -> list[Schedule]:
    limit = (device.shared_bytes_per_block or 227 * 1024) - 1024
    if not shape.static or shape.passes < 2 or shape.reduced < 2048:
        return []
    fitting = [c for c in (1, 2, 4, 8, 16) if shape.reduced * shape.copied_bytes / c <= limit]
    # The smallest cluster that fits, and the first that leaves room for two blocks on a processor.
    roomy = [c for c in fitting if shape.reduced * shape.copied_bytes / c <= limit / 2]
    clusters = dict.fromkeys([*roomy[:1], *fitting[:1], *roomy[1:2]])
    return [
        make("cuda", "rows/shared", block=block, cluster=c, unroll=unroll, vec=shape.vec)
        for c in clusters
        for block, unroll in ((512, 4), (1024, 2))
    ]


def _stream_rows(shape: LoopShape) -> list[Schedule]:
    clusters = (1,) if shape.passes < 2 or shape.reduced < 16384 else (1, 4, 8, 16)
    block = 256 if shape.reduced <= 8192 else 512
    schedules = [
        make("cuda", "rows/stream", block=block, cluster=c, unroll=u, vec=shape.vec) for c in clusters for u in (2, 4)
    ]
    return [*schedules, make("cuda", "rows/stream", block=1024, cluster=clusters[-1], unroll=2, vec=shape.vec)]


def _cols(shape: LoopShape, device: DeviceFacts) -> list[Schedule]:
    cores, vec = max(device.cores, 1), shape.vec
    half = max(vec // 2, 1)
    # Tiles of few columns, so that many blocks are at work; what runs along R is in whole lines either way.
    turned = (
        (8, 16, vec if shape.inner >= 8 * vec else 1),
        (8, 32, vec),
        (16, 16, vec),
        (16, 16, half),
        (16, 32, 1),
        (8, 8, vec),
        (32, 8, half),
    )
    kept = (
        *(turned if shape.turned and shape.reduced >= LONG_COLUMN else ()),
        *((32, 4, half), (32, 4, vec), (32, 8, vec), (64, 4, vec)),
        *((32, 8, 1), (32, 4, 1), (32, 16, vec), (128, 2, vec)),
    )
    if not shape.turned and shape.outer * shape.reduced * shape.inner * shape.row_bytes <= CACHED_BYTES:
        kept = (*sorted(_low_tiles(shape, half), key=lambda one: _idle(shape, cores, *one)), *kept)
    registers = [
        derived(shape, make("cuda", "cols/reg", tx=tx, ty=ty, vec=width))
        for tx, ty, width in dict.fromkeys(_no_wider(shape, *one) for one in kept)
    ]
    read = (
        *(((8, 16, 8, vec), (16, 16, 4, vec)) if shape.turned and shape.reduced >= LONG_COLUMN else ()),
        *((32, 8, 8, 1), (32, 8, 4, vec), (64, 4, 8, 1), (32, 16, 8, 1), (128, 2, 8, vec), (32, 4, 8, vec)),
    )
    if not shape.turned and shape.reduced <= SHORT_COLUMN:
        # Two columns of each thread, if that leaves enough blocks.
        pair = min(vec, 2) if shape.outer * -(-shape.inner // 64) >= 8 * cores else 1
        read = ((32, 4, 8, pair), *read)
    tiles = dict.fromkeys((*_no_wider(shape, tx, ty, width), unroll) for tx, ty, unroll, width in read)
    stream = [make("cuda", "cols/stream", tx=tx, ty=ty, unroll=unroll, vec=width) for tx, ty, width, unroll in tiles]
    fitting = [schedule for schedule in registers if schedule is not None] if shape.passes > 1 else []
    narrow, full = _narrow(shape), [schedule for schedule in stream if derived(shape, schedule) is not None]
    blocks = shape.outer * -(-shape.inner // 32)
    if blocks < 2 * cores and shape.reduced >= 256:
        split = _split_columns(shape, cores, blocks)
        return [*split, *narrow, *full]
    return [*narrow, *(() if narrow and shape.inner <= 8 else (*fitting, *(full or stream)))]


def _low_tiles(shape: LoopShape, width: int) -> list[tuple[int, int, int]]:
    """Returns block shapes (tx, ty, vec) for a column reduction: threads along the columns, threads that share a
    column, and columns of a thread (`width`, 1 or a whole vector). Each thread has few values of a column and loads
    them all at once. If values come from the cache, this takes an H200 two thirds to a quarter of the time of many
    values for each thread.
    """
    if shape.reduced <= 8:
        return [(32, 4 if shape.reduced > 3 else 2, shape.vec), (32, 4, width), (8, 8, width)]
    tall = [(8, 32, width), (8, 32, 1), (8, 16, width)]
    if shape.reduced > MEDIUM_COLUMN:
        return tall
    return [(32, 4, width), (16, 8, width), *([(16, 16, width)] if shape.reduced <= SHORT_COLUMN else []), *tall]


def _idle(shape: LoopShape, cores: int, tx: int, ty: int, width: int) -> float:
    """Returns the share of the device's `cores` multiprocessors that get no thread block if each block has tx·width
    columns, from 0 to 1, rounded to tenths."""
    blocks = shape.outer * -(-shape.inner // (tx * width))
    return round(max(1 - blocks / cores, 0), 1)


def _no_wider(shape: LoopShape, tx: int, ty: int, width: int) -> tuple[int, int, int]:
    """Returns the block shape (tx, ty, width): threads along the columns, threads that share a column, columns of a
    thread. If some threads would be behind the last column, tx is smaller and ty larger, with about as many threads.
    """
    most = max(_power(shape.inner) // width, 8)
    return (tx, ty, width) if tx <= most else (most, min(ty * tx // most, 32), width)


def _split_columns(shape: LoopShape, cores: int, blocks: int) -> list[Schedule]:
    """Returns schedules of a column reduction in which several thread blocks share the rows of a few columns. With
    several passes over the rows there are fewer blocks, because each block of a later pass combines the partial results
    of all blocks. `blocks` is the number of blocks if they shared nothing, `cores` that of multiprocessors.
    """
    most = 1 << (max((8 if shape.passes == 1 else 4) * cores // max(blocks, 1), 2) - 1).bit_length()
    schedules = []
    for half in (1, 2):
        for vec in dict.fromkeys((1, shape.vec) if shape.inner >= 32 else (shape.vec, 1)):
            tx = min(32 // vec, _power(-(-shape.inner // vec)))
            ty = 256 // tx
            parts = most
            while parts > 2 and shape.reduced // parts < 4 * ty:
                parts //= 2
            for unroll in (4, 8):
                count = max(parts // half, 2)
                schedules.append(make("cuda", "cols/split", parts=count, tx=tx, ty=ty, unroll=unroll, vec=vec))
    return sorted(schedules, key=lambda schedule: schedule["unroll"])


def _narrow(shape: LoopShape) -> list[Schedule]:
    """Returns schedules of a column reduction with at most 16 columns; none for more columns. With many rows, blocks
    are only as wide as the columns; with few rows, the threads of a block continue with the columns of the next row
    group (the next position of the outer loops).
    """
    if shape.inner > 16 or shape.turned:
        return []
    tx, ty = _power(shape.inner), min(max(_power(shape.reduced) // 8, 1), 8)
    deep = [make("cuda", "cols/stream", tx=tx, ty=min(256 // tx, 64), unroll=unroll, vec=1) for unroll in (4, 8)]
    flat = [make("cuda", "cols/stream", flat=1, tx=threads // ty, ty=ty, vec=1) for threads in (256, 128, 512)]
    kept = [make("cuda", "cols/reg", flat=1, tx=256 // ty, ty=ty, vec=1)] if shape.passes > 1 else []
    order = [*deep, *kept, *flat] if shape.reduced >= 512 else [*kept, *flat, *(deep if shape.reduced >= 64 else [])]
    if shape.inner <= 4 and 32 <= shape.reduced < 512:
        # Threads of a warp read along the rows, which are contiguous but for the few columns.
        order = [make("cuda", "cols/stream", flat=1, tx=8, ty=8, vec=1), *order]
    return [schedule for one in order if (schedule := derived(shape, one)) is not None]


def _power(number: int) -> int:
    """Returns the smallest power of two that is at least `number`."""
    return 1 << (max(number, 1) - 1).bit_length()
