"""First schedules for rows that a team of blocks keeps in shared memory."""

from __future__ import annotations

from kernel_assistant.generator.schedule import Schedule, make
from kernel_assistant.generator.workload import Shape
from kernel_assistant.targets.base import DeviceFacts

#: (blocks that share a processor, their threads), best guess first: while one waits, another one loads or stores.
RESIDENT = ((2, 512), (3, 256), (1, 1024), (4, 256))
#: Rows below this are kept by one block or a small cluster.
LEAST_BYTES = 128 << 10
#: Bytes of a block that are not for its share: the reductions, and what the driver takes.
RESERVED = 2048
#: Sweeps of a part are a multiple of this, the form's default.
UNROLL = 4


def team_rows(shape: Shape, device: DeviceFacts) -> list[Schedule]:
    """Teams that fit the device at least once, so that no block waits for one that is not there."""
    memory, row = device.shared_bytes_per_block or 227 << 10, shape.reduced * shape.copied_bytes
    if not shape.static or row < LEAST_BYTES:
        return []
    found = []
    for resident, block in RESIDENT:
        step = block * shape.vec
        sweeps, most = -(-shape.reduced // step), (memory // resident - RESERVED) // (step * shape.copied_bytes)
        if not most:
            continue
        most -= most % UNROLL if most > UNROLL else 0
        parts = -(-sweeps // _share(sweeps, most))
        if 2 <= parts <= resident * max(device.cores, 1):
            team = make("cuda", "rows/team", block=block, parts=parts, vec=shape.vec)
            found += [team, team.having(stage=0)]
    return found


def _share(sweeps: int, most: int) -> int:
    """Sweeps of a part: the largest number that divides the row evenly, if that is not much less than `most`."""
    even = max(count for count in range(1, most + 1) if sweeps % count == 0)
    return even if 4 * even >= 3 * most else most
