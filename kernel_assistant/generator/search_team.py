"""First schedules for long rows: in the shared memory of a team of blocks, or in a relay that reads the L2 cache."""

from __future__ import annotations

from kernel_assistant.generator.schedule import Schedule, make
from kernel_assistant.generator.workload import Shape
from kernel_assistant.targets.base import DeviceFacts

#: (blocks that share a processor, their threads, stage), best guess first: while one waits, others load or store.
RESIDENT = ((3, 256, 1), (2, 512, 0), (1, 1024, 0), (3, 256, 0), (2, 512, 1))
#: (threads, vectors of each) of the blocks of a relay.
RELAY = ((512, 4), (256, 4), (512, 2))
THREADS = 2048
#: The cache holds what was read, what is written, and a margin.
CACHE_SHARE = 3
#: Rows below this are kept by one block or a small cluster.
LEAST_BYTES = 128 << 10
#: Bytes of a block that are not for its share: the reductions, and what the driver takes.
RESERVED = 2048
#: Sweeps of a part are a multiple of this, the form's default.
UNROLL = 4


def long_rows(shape: Shape, device: DeviceFacts) -> list[Schedule]:
    """Teams and relays in turn. Where each row reads weights as long as itself, clusters that go in step come first."""
    teams, relays = team_rows(shape, device), relay_rows(shape, device)
    found = [*teams[:1], *relays[:1], *teams[1:2], *relays[1:2], *teams[2:], *relays[2:]]
    if shape.row_bytes == shape.copied_bytes or not found:
        return found
    in_step = [make("cuda", "rows/stream", block=512, cluster=c, unroll=4, vec=shape.vec) for c in (8, 16)]
    return [*in_step, *found]


def team_rows(shape: Shape, device: DeviceFacts) -> list[Schedule]:
    """Teams that fit the device at least once, so that no block waits for one that is not there."""
    memory, row = device.shared_bytes_per_block or 227 << 10, shape.reduced * shape.copied_bytes
    if not shape.static or row < LEAST_BYTES:
        return []
    found = []
    for resident, block, stage in RESIDENT:
        step = block * shape.vec
        sweeps, most = -(-shape.reduced // step), (memory // resident - RESERVED) // (step * shape.copied_bytes)
        if not most:
            continue
        most -= most % UNROLL if most > UNROLL else 0
        parts = -(-sweeps // _share(sweeps, most))
        if 2 <= parts <= resident * max(device.cores, 1):
            found.append(make("cuda", "rows/team", block=block, parts=parts, stage=stage, vec=shape.vec))
    return found


def relay_rows(shape: Shape, device: DeviceFacts) -> list[Schedule]:
    """Relays whose rows in between fit a third of the cache, and are as many as keep blocks from waiting."""
    row, cores = shape.reduced * shape.copied_bytes, max(device.cores, 1)
    if not shape.static or row < LEAST_BYTES:
        return []
    found = []
    for block, unroll in RELAY:
        parts = -(-shape.reduced // (block * unroll * shape.vec))
        # Blocks of both passes are in flight, some 2048 threads a processor; half as many again, as they are uneven.
        ahead = -(-3 * (cores * THREADS // block) // (4 * parts))
        if ahead * row * CACHE_SHARE <= device.cache_bytes and ahead < shape.outer:
            relay = make("cuda", "rows/relay", block=block, parts=parts, unroll=unroll, vec=shape.vec)
            found.append(relay.having(ahead=ahead))
    return found


def _share(sweeps: int, most: int) -> int:
    """Sweeps of a part: the largest number that divides the row evenly, if that is not much less than `most`."""
    even = max(count for count in range(1, most + 1) if sweeps % count == 0)
    return even if 4 * even >= 3 * most else most
