"""What launches have in common whose rows are shared by several blocks: which part is whose, counters at zero."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_assistant.generator.cuda.group import Layout
from kernel_assistant.generator.nest import Nest
from kernel_assistant.generator.render import Unit
from kernel_assistant.generator.sizes import size_text
from kernel_assistant.records import Launch

#: Threads of the launch that zeroes the counters.
ZEROING = 256
#: Call sites of block reductions of a block that has waited too long.
ALONE_SITE = 200


def bounds(unit: Unit, layout: Layout, parts: int, share: int, size: int) -> None:
    """What belongs to `part` of a row: positions [first, end), counted from the first aligned element."""
    index, shift = layout.index, "" if layout.shift is None else " + shift"
    unit.add(f"const {index} begin = ({index})part * {share}, until = begin + {share}{shift};")
    unit.add(f"const {index} end = part == {parts - 1} || until > {size} ? {size} : until;")
    unit.add(f"const {index} first = begin + threadIdx.x * {layout.vec}{shift};")


def zero(nest: Nest, counters: Sequence[Sequence[str]]) -> tuple[Unit, Launch]:
    """Counters of every row to zero, those of a group in one line: scratch is not initialised."""
    unit, rows = Unit(nest.prefix + "rows_zero", "cuda"), nest.size(nest.outer)
    unit.add(f"const int64_t o = (int64_t)blockIdx.x * {ZEROING} + threadIdx.x;")
    unit.open(f"if (o < {unit.size(rows)})")
    for group in counters:
        unit.add(" = ".join([*(f"{unit.buffer(name)}[o]" for name in group), "0;"]))
    unit.close()
    unit.finish(bounds=f"__launch_bounds__({ZEROING}) ")
    return unit, unit.launch((f"cdiv({size_text(rows)}, {ZEROING})", "1", "1"), ZEROING)
