"""Code for launches whose rows are shared by several blocks: the bounds of each part, and the launch that sets counters
to zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.print.cuda.group import VectorLayout
from kernel_assistant.generator.print.render import KernelSource
from kernel_assistant.records import Launch

#: Threads of the launch that zeroes the counters.
ZEROING = 256
#: Call sites of block reductions of a block that has waited too long.
ALONE_SITE = 200


def bounds(unit: KernelSource, layout: VectorLayout, parts: int, share: int, size: int) -> None:
    """Writes declarations of the bounds of a block's part of a row: `end`, and `first`, the first position of this
    thread. A row of `size` elements has `parts` parts of `share` elements; the C variable `part` has the part's number.
    Parts begin at aligned elements.
    """
    index, shift = layout.index, "" if layout.shift is None else " + shift"
    unit.add(f"const {index} begin = ({index})part * {share}, until = begin + {share}{shift};")
    unit.add(f"const {index} end = part == {parts - 1} || until > {size} ? {size} : until;")
    unit.add(f"const {index} first = begin + threadIdx.x * {layout.vec}{shift};")


def zero(nest: LoopNest, counters: Sequence[Sequence[str]]) -> tuple[KernelSource, Launch]:
    """Returns the kernel and the launch that set the counters of every row to zero, because scratch memory is not
    initialised. `counters` has groups of buffer names; one statement sets all counters of a group.
    """
    unit, rows = KernelSource(nest.prefix + "rows_zero", "cuda"), nest.size(nest.outer)
    unit.add(f"const int64_t o = (int64_t)blockIdx.x * {ZEROING} + threadIdx.x;")
    unit.open(f"if (o < {unit.size(rows)})")
    for group in counters:
        unit.add(" = ".join([*(f"{unit.buffer(name)}[o]" for name in group), "0;"]))
    unit.close()
    unit.finish(bounds=f"__launch_bounds__({ZEROING}) ")
    return unit, unit.launch((f"cdiv({size_text(rows)}, {ZEROING})", "1", "1"), ZEROING)
