"""What the windows of a strip of neighbouring outputs span along a row of the input, and which vectors bring it."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.expr import Axis, Load
from kernel_assistant.generator.nest import Access, Nest
from kernel_assistant.generator.sizes import multiple_of
from kernel_assistant.generator.windows_plan import Part
from kernel_assistant.records.graph import DTYPE_BYTES

#: Most elements of a row that a thread may hold.
MOST_HELD = 96
#: Bytes of the longest access to memory, shared memory too, and of one line of all its banks.
WIDEST, BANKS = 16, 128
WARP = 32


@dataclass(frozen=True, slots=True)
class Reach:
    """Elements of a row of `size` elements along `axes` that `strip` neighbouring outputs look at.

    Output i of a row of `outputs` begins at stride·i - padding and looks at `taps` elements, `dilation` apart. Vectors
    have `vec` elements and begin at multiples of it; the first one begins `lead` elements before the first window.
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
        """Elements that the windows span."""
        return self.spanned(self.strip)

    def spanned(self, outputs: int) -> int:
        return (outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    def vectors(self, outputs: int) -> int:
        """Vectors that hold what neighbouring outputs look at, where the first of them begins a strip."""
        return -(-(self.lead + self.spanned(outputs)) // self.vec)

    def outside(self, outputs: int, last: int) -> tuple[int, int]:
        """(low, high): of pieces of `outputs` outputs that begin at output 0 … `last`, vectors low … high-1 are always
        inside the row."""
        count = self.vectors(outputs)
        before = (self.padding + self.lead) // self.vec
        room = self.size - last * self.stride + self.padding + self.lead
        return min(before, count), max(min(count, -(-room // self.vec)), 0)

    def start(self, output: str) -> str:
        """Where the first vector of a strip begins in the row that begins at `output`."""
        place = output if self.stride == 1 else f"{output} * {self.stride}"
        back = self.padding + self.lead
        return f"{place} - {back}" if back else place


def reach_of(nest: Nest, part: Part, strip: int) -> Reach:
    """Raises Unsupported where the strip spans too much for registers, or rows have a free length."""
    last, outputs = part.last, nest.size(nest.inner)
    if not isinstance(outputs, int):
        raise Unsupported("strips of rows of free length")
    if last is None:
        shape = (outputs, outputs, strip, 1, 1, 1, 0)
    else:
        assert isinstance(last.source.size, int)
        shape = (last.source.size, outputs, strip, last.stride, last.size, last.dilation, last.padding)
    axes = nest.inner if last is None else [last.source]
    reach = Reach(axes, *shape, _vec(nest, part, axes, shape[0], strip * shape[3]))
    if reach.held > MOST_HELD:
        raise Unsupported(f"a strip whose windows span {reach.held} elements of a row")
    return reach


def _vec(nest: Nest, part: Part, axes: list[Axis], size: int, step: int) -> int:
    """Elements of a vector: rows consist of whole ones, strips begin with one."""
    wide = vectored(nest, part, axes)
    others = [*nest.outer, *(span.source for span in part.spans)]
    vec = min(8, WIDEST // max((DTYPE_BYTES[access.dtype] for access in wide), default=WIDEST))
    while vec > 1 and (size % vec or step % vec or not all(access.aligned(others, vec) for access in wide)):
        vec //= 2
    return vec


def vectored(nest: Nest, part: Part, axes: list[Axis]) -> list[Access]:
    """What the windows read one element after the other."""
    found = [nest.loads[id(expr)] for expr in part.body if isinstance(expr, Load) and expr.buffer]
    return [access for access in dict.fromkeys(found) if not access.computed and access.linear(axes) == 1]


def store_vec(nest: Nest, access: Access, strip: int) -> int:
    """Elements of a vector of results; 0 where they do not lie next to each other."""
    if access.linear(nest.inner) != 1:
        return 0
    vec = min(strip, WIDEST // DTYPE_BYTES[access.dtype])
    while vec > 1 and not (multiple_of(access.offset, vec) and access.aligned(nest.outer, vec)):
        vec //= 2
    return vec
