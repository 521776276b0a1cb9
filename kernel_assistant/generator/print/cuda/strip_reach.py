"""Computes which elements of an input row the windows of a strip of neighbouring outputs cover, and which vectors
contain these elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Axis, Load
from kernel_assistant.generator.ir.sizes import multiple_of
from kernel_assistant.generator.loops.nest import Access, LoopNest
from kernel_assistant.generator.loops.windows_plan import WindowBody
from kernel_assistant.records.graph import DTYPE_BYTES

#: Most elements of a row that a thread may hold.
MOST_HELD = 96
#: Bytes of the longest access to memory, shared memory too, and of one line of all its banks.
WIDEST, BANKS = 16, 128
WARP = 32


@dataclass(frozen=True, slots=True)
class WindowExtent:
    """The elements of a row of `size` elements along `axes` that the windows of `strip` neighbouring outputs cover.

    The window of output i, of `outputs` in a row, begins at stride·i - padding and has `taps` elements, `dilation`
    apart. Vectors have `vec` elements and begin at multiples of it; the first one begins `lead` elements before the
    first window.
    """

    axes: list[Axis]
    size: int
    outputs: int
    strip: int
    stride: int
    taps: int
    dilation: int
    padding: int
    vec: int

    @property
    def lead(self) -> int:
        return -self.padding % self.vec

    @property
    def held(self) -> int:
        """The number of elements that the windows cover."""
        return self.spanned(self.strip)

    def spanned(self, outputs: int) -> int:
        return (outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    def vectors(self, outputs: int) -> int:
        """Returns the number of vectors that contain the windows of `outputs` neighbouring outputs, the first of which
        begins a strip."""
        return -(-(self.lead + self.spanned(outputs)) // self.vec)

    def outside(self, outputs: int, last: int) -> tuple[int, int]:
        """Returns (low, high): for any `outputs` neighbouring outputs that begin at one of the outputs 0 … `last`, the
        vectors low … high-1 are completely inside the row.
        """
        count = self.vectors(outputs)
        before = (self.padding + self.lead) // self.vec
        room = self.size - last * self.stride + self.padding + self.lead
        return min(before, count), max(min(count, -(-room // self.vec)), 0)

    def start(self, output: str) -> str:
        """Returns C text of the position of a strip's first vector in the row of the input; `output` is the strip's
        first output."""
        position = output if self.stride == 1 else f"{output} * {self.stride}"
        back = self.padding + self.lead
        return f"{position} - {back}" if back else position


def reach_of(nest: LoopNest, part: WindowBody, strip: int) -> WindowExtent:
    """Returns the extent of the windows of a strip. Raises Unsupported if it needs too many registers, or if rows have
    a free length.
    """
    last, outputs = part.last, nest.size(nest.inner)
    if not isinstance(outputs, int):
        raise Unsupported("strips of rows of free length")
    if last is None:
        shape = (outputs, outputs, strip, 1, 1, 1, 0)
    else:
        assert isinstance(last.source.size, int)
        shape = (last.source.size, outputs, strip, last.stride, last.size, last.dilation, last.padding)
    axes = nest.inner if last is None else [last.source]
    reach = WindowExtent(axes, *shape, _vec(nest, part, axes, shape[0], strip * shape[3]))
    if reach.held > MOST_HELD:
        raise Unsupported(f"a strip whose windows span {reach.held} elements of a row")
    return reach


def _vec(nest: LoopNest, part: WindowBody, axes: list[Axis], size: int, step: int) -> int:
    """Returns how many elements a vector has with which a thread reads a row of the input of the window `part`.

    The row has `size` elements along `axes`. A thread computes a strip of neighbouring outputs; the windows of the next
    strip begin `step` elements later. The result is the largest power of 2, at most 8 elements and `WIDEST` bytes, such
    that `size` and `step` are multiples of it and rows begin at aligned addresses; 1 if no load is contiguous.
    """
    wide = vectored(nest, part, axes)
    others = [*nest.outer, *(span.source for span in part.spans)]
    vec = min(8, WIDEST // max((DTYPE_BYTES[access.dtype] for access in wide), default=WIDEST))
    while vec > 1 and (size % vec or step % vec or not all(access.aligned(others, vec) for access in wide)):
        vec //= 2
    return vec


def vectored(nest: LoopNest, part: WindowBody, axes: list[Axis]) -> list[Access]:
    """Returns the accesses of the window's body whose elements are contiguous along `axes`."""
    loaded = [nest.loads[id(expr)] for expr in part.body if isinstance(expr, Load) and expr.buffer]
    return [access for access in dict.fromkeys(loaded) if not access.computed and access.linear(axes) == 1]


def store_vec(nest: LoopNest, access: Access, strip: int) -> int:
    """Returns the number of elements that `access` stores or loads as one vector; 0 if they are not contiguous."""
    if access.linear(nest.inner) != 1:
        return 0
    vec = min(strip, WIDEST // DTYPE_BYTES[access.dtype])
    while vec > 1 and not (multiple_of(access.offset, vec) and access.aligned(nest.outer, vec)):
        vec //= 2
    return vec
