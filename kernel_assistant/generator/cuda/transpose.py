"""Elementwise nests whose loads run across the stores: square tiles go through shared memory, so that both sides
touch whole lines."""

from __future__ import annotations

from kernel_assistant.generator.crossing import crossing
from kernel_assistant.generator.cuda.common import pointers
from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.nest import Nest
from kernel_assistant.generator.render import Body, Unit, element, joined
from kernel_assistant.generator.schedule import Schedule
from kernel_assistant.generator.sizes import size_text
from kernel_assistant.records import Launch


def emit_transpose(nest: Nest, schedule: Schedule) -> tuple[Unit, Launch]:
    found, tile, block = crossing(nest), schedule["tile"], schedule["block"]
    if tile not in (16, 32, 64) or block % tile:
        raise Unsupported(f"tiles of {tile} for blocks of {block}")
    unit = Unit(nest.prefix + "transpose", "cuda")
    rest = [axis for axis in nest.outer if axis is not found.axis]
    sizes = unit.size(nest.size(nest.inner)), unit.size(found.axis.size)
    unit.add(f"const int64_t N = {sizes[0]}, C = {sizes[1]};")
    unit.add(f"const int64_t across = (N + {tile - 1}) / {tile}, along = (C + {tile - 1}) / {tile};")
    unit.add_if_used("o", "const int64_t o = blockIdx.x / (across * along);")
    unit.add(f"const int64_t i0 = blockIdx.x % across * {tile}, c0 = blockIdx.x / across % along * {tile};")
    unit.add(f"const int tx = threadIdx.x % {tile}, ty = threadIdx.x / {tile};")
    pointers(unit, nest, rest, "o")
    for access in found.loads:
        unit.add(f"__shared__ {element(access, 'cuda')} t_{access.name}[{tile}][{tile + 1}];")
    loops = [([found.axis], "c"), (nest.inner, "i")]
    _open(unit, tile, block, "i0 + y", "c0 + tx")
    for access in found.loads:
        place = joined(*(unit.position(access, *loop) for loop in loops))
        unit.add(f"t_{access.name}[y][tx] = {access.name}[{place}];")
    _close(unit)
    unit.add("__syncthreads();")
    _open(unit, tile, block, "i0 + tx", "c0 + y")
    held = {id(access) for access in found.loads}
    texts = {}
    for access in dict.fromkeys(nest.loads.values()):
        place = joined(*(unit.position(access, *loop) for loop in loops))
        here = f"ka_get(t_{access.name}[tx][y])"
        texts[id(access)] = here if id(access) in held else unit.fetch(access, place)
    body = Body(unit, nest)
    body.write(nest.program.exprs, texts)
    for access, output in nest.stores:
        place = joined(*(unit.position(access, *loop) for loop in loops))
        unit.add(f"ka_put({access.name}[{place}], {body.name(output.expr)});")
    _close(unit)
    unit.finish(bounds=f"__launch_bounds__({block}) ")
    tiles = [f"cdiv({size_text(size)}, {tile})" for size in (nest.size(nest.inner), found.axis.size)]
    grid = f"{tiles[0]} * {tiles[1]} * ({size_text(nest.size(rest))})"
    return unit, unit.launch((grid, "1", "1"), block)


def _open(unit: Unit, tile: int, block: int, i: str, c: str) -> None:
    """Begin the loop over the rows of a tile that this thread has."""
    unit.add("#pragma unroll")
    unit.open(f"for (int y = ty; y < {tile}; y += {block // tile})")
    unit.add(f"const int64_t i = {i}, c = {c};")
    unit.open("if (i < N && c < C)")


def _close(unit: Unit) -> None:
    unit.close()
    unit.close()
