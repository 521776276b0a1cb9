"""Writes scans in three launches: the totals of the parts of each row or column, the running values before each part,
the results.

The totals are double (int64_t for integers) and combined in a fixed order, so that results do not vary from run to run.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import PrefixScan
from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.print.cpu.common import identity
from kernel_assistant.generator.print.cpu.scan import carry_type
from kernel_assistant.generator.print.cuda.common import OPERATOR
from kernel_assistant.generator.print.cuda.partial import SCRATCH
from kernel_assistant.generator.print.render import KernelSource
from kernel_assistant.records import BufferSpec, Launch

#: Totals that one thread reads at a time.
BATCH = 8


def total(number: int) -> str:
    """Returns the name of the scratch buffer of scan `number`. The first launch writes the totals of the parts of each
    row or column there, the second one replaces them by the running values before each part.
    """
    return f"part_s{number}"


def total_buffers(nest: LoopNest, shape: tuple[str, ...]) -> tuple[BufferSpec, ...]:
    """Returns the scratch buffers of all scans. `shape` has the sizes of the outer loops, the parts and, for scans of
    columns, the columns."""
    return tuple(
        BufferSpec(name=total(number), dtype=SCRATCH[carry_type(scan)], shape=shape)
        for number, scan in enumerate(nest.scans)
    )


def before_parts(nest: LoopNest, threads: int, chunk: int = 0, parts: int = 0) -> tuple[KernelSource, Launch]:
    """Returns the kernel and the launch in which a block of `threads` threads for each row or column replaces the total
    of every part by the running value before this part. There are `parts` parts, or, if `chunk` is not 0, one for each
    `chunk` elements.
    """
    unit = KernelSource(nest.prefix + "scan_before", "cuda")
    unit.add(f"const int64_t I = {unit.size(nest.size(nest.inner))};")
    count = f"({unit.size(nest.size(nest.reduced))} + {chunk - 1}) / {chunk}" if chunk else str(parts)
    unit.add(f"const int64_t parts = {count}, share = (parts + {threads - 1}) / {threads};")
    unit.add("const int64_t start = blockIdx.x / I * parts * I + blockIdx.x % I;")
    unit.add("const int64_t from = threadIdx.x * share, to = ka_min(parts, from + share);")
    for number, scan in enumerate(nest.scans):
        _replace(unit, number, scan, threads)
    unit.finish(bounds=f"__launch_bounds__({threads}) ")
    rows = f"({size_text(nest.size(nest.outer))}) * ({size_text(nest.size(nest.inner))})"
    return unit, unit.launch((rows, "1", "1"), threads)


def _replace(unit: KernelSource, number: int, scan: PrefixScan, threads: int) -> None:
    """Writes code that replaces each total of one scan by the running value before its part: each thread combines its
    own totals, the block scans the combined ones, then each thread loops over its own totals once more.
    """
    kind, operator = carry_type(scan), OPERATOR[scan.kind]
    none = f"({kind}){identity(scan)}"
    unit.open("")
    unit.add(f"{kind}* const at = {unit.buffer(total(number))} + start;")
    unit.add(f"{kind} run[1][1] = {{{{{none}}}}}, carry = {none};")
    for again in (False, True):
        if again:
            unit.add(f"ka_block_scan<{number}, {threads}, 1, 1, {operator}>(run, carry, {none}, true, 0);")
        # Loads of several totals are in flight together, before any of them is replaced.
        unit.open(f"for (int64_t p = from; p < to; p += {BATCH})")
        unit.add(f"{kind} own[{BATCH}];")
        unit.add("#pragma unroll")
        unit.add(f"for (int j = 0; j < {BATCH}; ++j) own[j] = p + j < to ? at[(p + j) * I] : {none};")
        unit.add("#pragma unroll")
        unit.open(f"for (int j = 0; j < {BATCH}; ++j)")
        if again:
            unit.add("if (p + j < to) at[(p + j) * I] = run[0][0];")
        unit.add(f"run[0][0] = {operator}::join(run[0][0], own[j]);")
        unit.close()
        unit.close()
    unit.close()
