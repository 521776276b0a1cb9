"""Positions of loads and stores as text: offsets of rows, operands of elementwise loops."""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Axis
from kernel_assistant.generator.ir.sizes import Size, mul, product
from kernel_assistant.generator.loops.nest import Access
from kernel_assistant_training.teacher.text.sizes import NoForm, Sizes


def merged(access: Access, axes: list[Axis]) -> list[tuple[Size, Size]]:
    """(size, step) of the access's loops, outermost first. Neighbouring loops over one stretch of memory are one."""
    found: list[tuple[Size, Size]] = []
    for axis in axes:
        step = access.index.get(axis, 0)
        if found and found[-1][1] == mul(step, axis.size):
            found[-1] = (mul(found[-1][0], axis.size), step)
        else:
            found.append((axis.size, step))
    return found


def plain(access: Access) -> Access:
    """The access itself. Raises NoForm if it reads at a computed position, or no buffer."""
    if access.computed or not access.buffer:
        raise NoForm("a position that is computed")
    return access


def row_offset(access: Access, outer: list[Axis], sizes: Sizes) -> str:
    """The offset of row `r` of the access as text, "" for 0. `r` counts through the loops `outer`."""
    parts = []
    loops = merged(access, outer)
    last: Size = 1
    for number, (size, step) in reversed(list(enumerate(loops))):
        if step != 0:
            text = "r" if last == 1 else f"r / {sizes.factor(last)}"
            text += f" % {sizes.factor(size)}" if number else ""
            text += "" if step == 1 else f" * {sizes.factor(step)}"
            parts.append(text)
        last = mul(last, size)
    if access.offset != 0:
        parts.insert(0, sizes.code(access.offset))
    return " + ".join(reversed(parts))


def row_pointer(access: Access, outer: list[Axis], sizes: Sizes, arguments: str) -> str:
    offset = row_offset(plain(access), outer, sizes)
    return f"{arguments}{access.buffer} + {offset}" if offset else f"{arguments}{access.buffer}"


def operand(access: Access, axes: list[Axis], sizes: Sizes) -> str:
    """The access as an operand of `ka::pointwise` (CUDA) over all loops."""
    base = f"a.{plain(access).buffer}"
    if access.offset != 0:
        base += f" + {sizes.code(access.offset)}"
    loops = merged(access, axes)
    moving = [number for number, (_, step) in enumerate(loops) if step != 0]
    if not moving:
        return f"ka::single({base})"
    if len(moving) == 1 and (loops[moving[0]][1] == 1):
        at = moving[0]
        inner, size = product([one for one, _ in loops[at + 1 :]]), loops[at][0]
        if at == 0:
            return base if inner == 1 else f"ka::leading({base}, {sizes.code(inner)})"
        if inner == 1:
            return f"ka::last({base}, {sizes.code(size)})"
        return f"ka::middle({base}, {sizes.code(inner)}, {sizes.code(size)})"
    numbers = [number for size, step in reversed(loops) for number in (step, size)][:-1]
    return f"ka::strided({base}, {', '.join(map(sizes.code, numbers))})"
