"""Chooses the first schedules for long rows that several blocks share (a team), in their shared memory and
registers."""

from __future__ import annotations

from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.search.workload import LoopShape
from kernel_assistant.targets.base import DeviceFacts

#: (blocks that share a processor, their threads, stage, held), best guess first: while one waits, others load or store.
#: Four small blocks with a quarter of the row in registers were the fastest on an H200 for rows of 1 to 8 MB.
RESIDENT = ((4, 256, 1, 4), (4, 256, 0, 4), (2, 256, 1, 16), (3, 256, 1, 0), (2, 512, 0, 0), (1, 1024, 0, 0))
#: Rows below this are kept by one block or a small cluster.
LEAST_BYTES = 128 << 10
#: Bytes of a block that are not for its share: the reductions, and what the driver takes.
RESERVED = 2048
#: Sweeps of a part are a multiple of this, the form's default.
UNROLL = 4


def long_rows(shape: LoopShape, device: DeviceFacts) -> list[Schedule]:
    """Returns schedules in which a team (several thread blocks) handles each row. If each row also reads values only
    once, such as weights as long as itself, schedules with thread-block clusters come first: their blocks run in step.
    """
    teams = team_rows(shape, device)
    if shape.row_bytes == shape.copied_bytes or not teams:
        return teams
    in_step = [make("cuda", "rows/stream", block=512, cluster=c, unroll=4, vec=shape.vec) for c in (8, 16)]
    return [*in_step, *teams]


def team_rows(shape: LoopShape, device: DeviceFacts) -> list[Schedule]:
    """Returns schedules in which a team (several thread blocks) handles each row, and whose blocks fit on the device at
    the same time, so that no block waits for one that is not running. Empty if rows are short or of free length.
    """
    memory, row = device.shared_bytes_per_block or 227 << 10, shape.reduced * shape.copied_bytes
    if not shape.static or row < LEAST_BYTES:
        return []
    schedules = []
    for resident, block, stage, held in RESIDENT:
        step = block * shape.vec
        sweeps, most = -(-shape.reduced // step), (memory // resident - RESERVED) // (step * shape.copied_bytes)
        if not most:
            continue
        most -= most % UNROLL if most > UNROLL else 0
        parts = -(-sweeps // _share(sweeps, most + held))
        if 2 <= parts <= resident * max(device.cores, 1):
            schedules.append(make("cuda", "rows/team", block=block, parts=parts, stage=stage, held=held, vec=shape.vec))
    return schedules


def _share(sweeps: int, most: int) -> int:
    """Returns how many of the `sweeps` of a row one block gets (a sweep is one vector for each thread): the largest
    divisor of `sweeps` up to `most`, so that all blocks get equally many, if it is at least 3/4 of `most`; otherwise
    `most`.
    """
    even = max(count for count in range(1, most + 1) if sweeps % count == 0)
    return even if 4 * even >= 3 * most else most
