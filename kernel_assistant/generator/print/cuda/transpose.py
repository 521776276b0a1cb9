"""Writes elementwise loop nests whose loads and stores are contiguous along different loops, as in a transposition.
Square tiles go through shared memory, so that both access whole cache lines, in vectors if rows consist of whole
vectors.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Axis, Const, Expr, Load, Op, children
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import multiple_of, size_text
from kernel_assistant.generator.loops.nest import Access, LoopNest
from kernel_assistant.generator.loops.passes import below
from kernel_assistant.generator.loops.transposed_access import TransposedAccess, crossing
from kernel_assistant.generator.lower.positions import BELOW
from kernel_assistant.generator.print.cuda.common import STATIC_LIMIT
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, element, joined, pointers
from kernel_assistant.records import Launch
from kernel_assistant.records.graph import DTYPE_BYTES

#: Bytes of one vector access.
WIDEST = 16


def emit_transpose(nest: LoopNest, schedule: Schedule) -> tuple[KernelSource, Launch]:
    transposed, tile, block = crossing(nest, guarded=True), schedule["tile"], schedule["block"]
    vec, put = schedule["vec"], schedule["put"]
    for width in (vec, put):
        if tile not in (16, 32, 64) or width not in (1, 2, 4, 8) or block % (tile // width):
            raise Unsupported(f"tiles of {tile} in vectors of {width} for blocks of {block}")
        if tile * tile // width < block:
            raise Unsupported(f"blocks of {block} for {tile * tile // width} vectors")
    if sum(tile * (tile + 1) * DTYPE_BYTES[access.dtype] for access in transposed.loads) > STATIC_LIMIT:
        raise Unsupported(f"tiles of {tile} for {len(transposed.loads)} tensors")
    _check_vectors(nest, transposed, vec, put)
    unit = KernelSource(nest.prefix + "transpose", "cuda")
    rest = [axis for axis in nest.outer if axis is not transposed.axis]
    sizes = unit.size(nest.size(nest.inner)), unit.size(transposed.axis.size)
    unit.add(f"const int64_t N = {sizes[0]}, C = {sizes[1]};")
    unit.add(f"const int64_t across = (N + {tile - 1}) / {tile}, along = (C + {tile - 1}) / {tile};")
    unit.add_if_used("o", "const int64_t o = blockIdx.x / (across * along);")
    # Tiles that make up whole rows of memory follow one another.
    inner, loaded = nest.size(nest.inner), transposed.axis.size
    first = isinstance(inner, int) and isinstance(loaded, int) and loaded < inner
    i, c = ("/ along % across", "% along") if first else ("% across", "/ across % along")
    unit.add(f"const int64_t i0 = blockIdx.x {i} * {tile}, c0 = blockIdx.x {c} * {tile};")
    pointers(unit, nest, rest, "o")
    loops = [([transposed.axis], "c"), (nest.inner, "i")]
    for access in transposed.loads:
        unit.add(f"__shared__ {element(access, 'cuda')} tile_{access.name}[{tile}][{tile + 1}];")
    unit.open("")
    _bring(unit, nest, transposed, loops, tile, block, vec)
    unit.close()
    unit.add("__syncthreads();")
    _finish(unit, nest, transposed, loops, tile, block, put)
    unit.finish(bounds=f"__launch_bounds__({block}) ")
    tiles = [f"cdiv({size_text(size)}, {tile})" for size in (nest.size(nest.inner), transposed.axis.size)]
    grid = f"{tiles[0]} * {tiles[1]} * ({size_text(nest.size(rest))})"
    return unit, unit.launch((grid, "1", "1"), block)


def _check_vectors(nest: LoopNest, transposed: TransposedAccess, vec: int, put: int) -> None:
    """Raises Unsupported unless loads consist of whole, aligned vectors of `vec` elements, and stores of `put`
    elements."""
    outer = [axis for axis in nest.outer if axis is not transposed.axis]
    sides = [(access, [*outer, *nest.inner], transposed.axis.size, vec) for access in transposed.loads]
    sides += [(access, [*outer, transposed.axis], nest.size(nest.inner), put) for access, _ in nest.stores]
    for access, others, size, width in sides:
        if width == 1:
            continue
        if width * DTYPE_BYTES[access.dtype] > WIDEST:
            raise Unsupported(f"vectors of {width} elements of {access.dtype}")
        if not multiple_of(size, width) or not access.aligned(others, width):
            raise Unsupported(f"rows of {access.name} that are not whole vectors of {width} elements")
        if access.guard is not None and not _is_uniform(nest, access.guard, transposed.axis, width):
            raise Unsupported(f"vectors of {width} elements, of which {access.name} may have only some")


def _is_uniform(nest: LoopNest, guard: Expr, axis: Axis, width: int) -> bool:
    """Whether `guard` has the same value for all elements of each vector along `axis`: it compares positions along the
    axis only with multiples of `width`, and depends on the axis in no other way.
    """
    if isinstance(guard, Load):
        return nest.loads[id(guard)].index.get(axis, 0) == 0
    if isinstance(guard, Op) and guard.text == BELOW and isinstance(guard.args[0], Load):
        position, bound = nest.loads[id(guard.args[0])], guard.args[1]
        if position.index.get(axis, 0) == 1:
            others = [other for other in position.index if other is not axis]
            whole = isinstance(bound, Const) and isinstance(bound.value, int) and bound.value % width == 0
            return whole and position.aligned(others, width)
    return all(_is_uniform(nest, child, axis, width) for child in children(guard))


Loops = list[tuple[list[Axis], str]]


def _place(unit: KernelSource, access: Access, loops: Loops) -> str:
    return joined(*(unit.position(access, *loop) for loop in loops))


def _bring(
    unit: KernelSource, nest: LoopNest, transposed: TransposedAccess, loops: Loops, tile: int, block: int, vec: int
) -> None:
    """Writes code that loads all vectors of a thread, so that the loads are in flight together, and then stores them in
    shared memory.
    """
    rows = _threads(unit, tile, block, vec)
    turns = tile // rows
    for access in transposed.loads:
        zero = "" if access.guard is None else " = {}"
        unit.add(f"{element(access, 'cuda')} v_{access.name}[{turns}][{vec}]{zero};")
    _open(unit, turns, f"i0 + ty + u * {rows}", "c0 + tx")
    guards = _guards(unit, nest, transposed, loops)
    for access, guard in zip(transposed.loads, guards, strict=True):
        load = f"ka_load<{vec}, 0>(v_{access.name}[u], {access.name} + {_place(unit, access, loops)});"
        unit.add(f"if ({guard}) {load}" if guard else load)
    _close(unit)
    unit.add("#pragma unroll")
    unit.open(f"for (int u = 0; u < {turns}; ++u)")
    unit.add("#pragma unroll")
    unit.open(f"for (int k = 0; k < {vec}; ++k)")
    for access in transposed.loads:
        unit.add(f"tile_{access.name}[ty + u * {rows}][tx + k] = v_{access.name}[u][k];")
    _close(unit)


def _guards(unit: KernelSource, nest: LoopNest, transposed: TransposedAccess, loops: Loops) -> list[str]:
    """Writes the conditions of guarded loads; returns the variable of each load's condition, "" for loads without a
    guard."""
    needed = below([access.guard for access in transposed.loads if access.guard is not None])
    positions = {
        id(access): unit.fetch(access, _place(unit, access, loops))
        for access in nest.loads.values()
        if not access.buffer
    }
    writer = StatementWriter(unit, nest)
    writer.write([expr for expr in nest.program.exprs if id(expr) in needed], positions)
    return ["" if access.guard is None else writer.name(access.guard) for access in transposed.loads]


def _finish(
    unit: KernelSource, nest: LoopNest, transposed: TransposedAccess, loops: Loops, tile: int, block: int, vec: int
) -> None:
    """Writes code that computes the expressions element by element, and stores the results one vector at a time."""
    rows = _threads(unit, tile, block, vec)
    _open(unit, tile // rows, "i0 + tx", f"c0 + ty + u * {rows}")
    for access, _ in nest.stores:
        unit.add(f"{element(access, 'cuda')} w_{access.name}[{vec}];")
    unit.add_if_used("first", "const int64_t first = i;")
    unit.add("#pragma unroll")
    unit.open(f"for (int k = 0; k < {vec}; ++k)")
    unit.add_if_used("i", "const int64_t i = first + k;")
    held = {id(access) for access in transposed.loads}
    texts = {
        id(access): f"ka_get(tile_{access.name}[tx + k][ty + u * {rows}])"
        if id(access) in held
        else unit.fetch(access, _place(unit, access, loops))
        for access in dict.fromkeys(nest.loads.values())
    }
    body = StatementWriter(unit, nest)
    body.write(nest.program.exprs, texts)
    for access, output in nest.stores:
        unit.add(f"ka_put(w_{access.name}[k], {body.name(output.expr)});")
    unit.close()
    for access, _ in nest.stores:
        unit.add(f"ka_store<{vec}, 0>({access.name} + {_place(unit, access, loops)}, w_{access.name});")
    _close(unit)


def _threads(unit: KernelSource, tile: int, block: int, vec: int) -> int:
    """Declares the position of a thread: `tx` is its first element in a row of the tile, `ty` its row. Returns the
    number of rows that the whole block covers at a time.
    """
    line = tile // vec
    unit.add(f"const int tx = threadIdx.x % {line}{f' * {vec}' if vec > 1 else ''}, ty = threadIdx.x / {line};")
    return block // line


def _open(unit: KernelSource, turns: int, i: str, c: str) -> None:
    """Begins the loop over the `turns` rows of a tile that this thread handles. `i` and `c` are C texts of the position
    along the inner loop and along the loop along which loads are contiguous; positions outside are skipped."""
    unit.add("#pragma unroll")
    unit.open(f"for (int u = 0; u < {turns}; ++u)")
    unit.add(f"const int64_t i = {i}, c = {c};")
    unit.open("if (i < N && c < C)")


def _close(unit: KernelSource) -> None:
    unit.close()
    unit.close()
