"""Writes the CUDA code that stores partial results of rows in scratch memory, and the code that reads them again.
Buffers `part_…` have a value for each part of a row, `whole_…` one for each row.
"""

from __future__ import annotations

from kernel_assistant.generator.print.cuda.common import JOINT, OPERATOR, STEP, PassReductions, identity
from kernel_assistant.generator.print.render import KernelSource, StatementWriter
from kernel_assistant.records import BufferSpec

SCRATCH = {"double": "f64", "float": "f32", "int64_t": "i64", "bool": "b1"}
#: Fields of a joint state, in the order in which they are stored.
FIELDS = {"m2": ("count", "mean", "m2"), "sumexp": ("top", "total")}
#: Call sites of block reductions that join parts, apart from those that make them.
JOIN_SITE = 100


def slots(reducing: PassReductions, item: str = "") -> list[tuple[str, str, str]]:
    """Returns (name in scratch, C text, C type) of every number that a pass leaves: a reduction, or a field of a pair
    of reductions. The C text is a variable's name without its prefix `all_` or `past_`. `item` is an index that follows
    the variable's name, such as "[k]".
    """
    numbers = []
    for reduce in reducing.single:
        label = reducing.label(reduce)
        numbers.append((f"r{label}", f"r{label}{item}", reduce.ctype))
    for kind, x, _, reduce in reducing.pairs:
        label = reducing.label(reduce)
        numbers += [(f"j{label}_{field}", f"j{label}{item}.{field}", x.ctype) for field in FIELDS[kind]]
    return numbers


def left_buffers(reducing: PassReductions, kind: str, shape: tuple[str, ...]) -> list[BufferSpec]:
    """Returns the scratch buffers to which `leave` writes, all of the shape `shape`; their names begin with `kind`."""
    return [BufferSpec(name=f"{kind}_{name}", dtype=SCRATCH[ctype], shape=shape) for name, _, ctype in slots(reducing)]


def leave(unit: KernelSource, reducing: PassReductions, kind: str, index: str, prefix: str) -> None:
    """Writes the code, for one thread, that stores the results in the variables `prefix`_… to their scratch buffers, at
    `index`.
    """
    for name, source, _ in slots(reducing):
        unit.add(f"{unit.buffer(f'{kind}_{name}')}[{index}] = {prefix}_{source};")


def join_parts(
    unit: KernelSource, body: StatementWriter, reducing: PassReductions, parts: int, threads: int, read: str = "{}"
) -> None:
    """Writes code that combines the parts of row `o` in a fixed order; every thread gets the results. `read` is a
    format for the C text that reads an element of scratch.
    """

    def piece(name: str) -> str:
        return read.format(f"{unit.buffer(f'part_{name}')}[o * {parts} + p]")

    loop = f"for (int p = threadIdx.x; p < {parts}; p += {threads})"
    for reduce in reducing.single:
        label = reducing.label(reduce)
        unit.add(f"{reduce.ctype} of_r{label} = {identity(reduce)};")
        unit.add(f"{loop} {STEP[reduce.kind].format(f'of_r{label}', piece(f'r{label}'))}")
        kind = f"ka_reduce<{JOIN_SITE + reducing.site(reduce)}, {threads}, 1, {OPERATOR[reduce.kind]}>"
        unit.add(f"const {reduce.ctype} past_r{label} = {kind}(of_r{label}, ({reduce.ctype}){identity(reduce)});")
    for kind, x, _, reduce in reducing.pairs:
        label = reducing.label(reduce)
        state, operator = f"{JOINT[kind][1]}<{x.ctype}>", JOINT[kind][2]
        unit.add(f"{state} of_j{label} = {state}::none();")
        fields = ", ".join(piece(f"j{label}_{field}") for field in FIELDS[kind])
        unit.add(f"{loop} of_j{label} = {operator}::join(of_j{label}, {state}{{{fields}}});")
        call = f"ka_reduce<{JOIN_SITE + reducing.site(reduce)}, {threads}, 1, {operator}>(of_j{label}, {state}::none())"
        unit.add(f"const {state} past_j{label} = {call};")
    reducing.take(body, "past_")


def read_whole(unit: KernelSource, body: StatementWriter, reducing: PassReductions, read: str = "{}") -> None:
    """Writes code that reads the results of row `o`, which an earlier launch has combined. `read` is a format for the C
    text that reads an element of scratch.
    """

    def value(name: str) -> str:
        return read.format(f"{unit.buffer(f'whole_{name}')}[o]")

    for reduce in reducing.single:
        name = f"r{reducing.label(reduce)}"
        unit.add_if_used(f"past_{name}", f"const {reduce.ctype} past_{name} = {value(name)};")
    for kind, x, _, reduce in reducing.pairs:
        name = f"j{reducing.label(reduce)}"
        fields = ", ".join(value(f"{name}_{field}") for field in FIELDS[kind])
        unit.add_if_used(f"past_{name}", f"const {JOINT[kind][1]}<{x.ctype}> past_{name} = {{{fields}}};")
    reducing.take(body, "past_")
