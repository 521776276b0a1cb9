"""Writes tiles in shared memory that transpose accesses of column reductions that are contiguous along the reduced loop
R, so that reads and writes access whole cache lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Expr, Load
from kernel_assistant.generator.ir.sizes import multiple_of
from kernel_assistant.generator.loops.nest import Access, LoopNest, accesses
from kernel_assistant.generator.loops.passes import Pass
from kernel_assistant.generator.lower.lower import Output
from kernel_assistant.generator.print.cuda.group import VectorLayout, VectorWriter
from kernel_assistant.generator.print.cuda.sweeps import COPY_BYTES
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, element, joined
from kernel_assistant.records.graph import DTYPE_BYTES

#: Bytes of a bank of shared memory. Accesses to memory along R are of this size where the elements are smaller.
BANK = 4
#: Bytes of all tiles of a block; the reductions take some as well.
MOST_BYTES = 192 * 1024


def runs_along(nest: LoopNest, layout: VectorLayout) -> list[Access]:
    """Returns the accesses that are contiguous along R but not along the columns."""
    return [
        access
        for access in accesses(nest)
        if access.buffer and not access.computed and id(access) not in layout.vector | layout.still
        if access.linear(nest.reduced) == 1 and any(step != 0 for step in access.along(nest.inner))
    ]


@dataclass(frozen=True, slots=True)
class TransposeTile:
    """A tile in shared memory: some rows of R by the columns of a block, contiguous along R. `width`: elements of one
    access to memory; `pitch`: elements from a column to the next, an odd number of banks; `offset`: the tile's first
    byte in shared memory.
    """

    access: Access
    width: int
    pitch: int
    offset: int


class TransposePlan:
    """The tiles of a kernel: each has `rows` rows of R and the `columns` columns of a block. Each thread handles a
    vector of these columns.
    """

    def __init__(self, nest: LoopNest, layout: VectorLayout, rows: int, columns: int, threads: int) -> None:
        self.nest, self.vec, self.rows, self.columns, self.threads = nest, layout.vec, rows, columns, threads
        self.tiles: dict[int, TransposeTile] = {}
        self.shared = 0
        for access in runs_along(nest, layout):
            size = DTYPE_BYTES[access.dtype]
            width = max(BANK // size, 1)
            others = [*nest.outer, *nest.inner]
            if not (multiple_of(nest.size(nest.reduced), width) and access.aligned(others, width)) or rows % width:
                width = 1
            words = -(-rows * size // BANK)
            pitch = max((words | 1) * BANK // size, 1)
            self.tiles[id(access)] = TransposeTile(access, width, pitch, self.shared)
            self.shared += -(-columns * pitch * size // COPY_BYTES) * COPY_BYTES
        if self.shared > MOST_BYTES:
            raise Unsupported(f"tiles of {self.shared} bytes of shared memory")

    def loads(self, part: Pass) -> list[TransposeTile]:
        loaded = [self.nest.loads[id(expr)] for expr in part.body if isinstance(expr, Load)]
        return [self.tiles[id(access)] for access in dict.fromkeys(loaded) if id(access) in self.tiles]

    def stores(self, part: Pass) -> list[TransposeTile]:
        return [self.tiles[id(access)] for access, _ in part.stores if id(access) in self.tiles]

    def declare(self, unit: KernelSource, part: Pass) -> None:
        unit.add("extern __shared__ uint4 ka_dynamic[];")
        for tile in (*self.loads(part), *self.stores(part)):
            kind, name = element(tile.access, "cuda"), tile.access.name
            start = f"reinterpret_cast<char*>(ka_dynamic) + {tile.offset}"
            unit.add(f"{kind}* const tile_{name} = reinterpret_cast<{kind}*>({start});")

    def element(self, access: Access, row: str) -> str:
        """Returns C text of element (`row`, k) of the tile of `access`, where k counts this thread's columns."""
        name = f"tile_{access.name}"
        columns = self.columns // self.vec
        return f"{name}[(threadIdx.x % {columns} * {self.vec} + k) * {self.tiles[id(access)].pitch} + {row}]"

    def bring(self, unit: KernelSource, part: Pass, begin: str, end: str) -> None:
        """Writes code that loads rows [begin, end) from memory into the tiles, with a barrier after it."""
        for tile in self.loads(part):
            here, there = self._open(unit, tile, begin, end)
            unit.add(f"ka_load<{tile.width}, 0>(whole, {there});")
            unit.add(f"ka_store<{tile.width}, 0>({here}, whole);")
            self._close(unit)
        unit.add("__syncthreads();")

    def put_away(self, unit: KernelSource, part: Pass, begin: str, end: str) -> None:
        """Writes code that stores rows [begin, end) of the tiles to memory, with a barrier before it."""
        unit.add("__syncthreads();")
        for tile in self.stores(part):
            here, there = self._open(unit, tile, begin, end)
            unit.add(f"ka_load<{tile.width}, 0>(whole, {here});")
            unit.add(f"ka_store<{tile.width}, 0>({there}, whole);")
            self._close(unit)

    def _open(self, unit: KernelSource, tile: TransposeTile, begin: str, end: str) -> tuple[str, str]:
        """Begins the loop over a tile. Returns the C texts of the addresses between which it copies: in the tile, and
        in memory. Neighbouring threads have neighbouring addresses in memory.
        """
        access, line = tile.access, self.rows // tile.width
        count = self.columns * line
        unit.add("#pragma unroll" if count <= 8 * self.threads else "#pragma unroll 8")
        unit.open(f"for (int at = threadIdx.x; at < {count}; at += {self.threads})")
        unit.add(f"const int p = at / {line}, s = at % {line}{f' * {tile.width}' if tile.width > 1 else ''};")
        unit.add(f"const int64_t q = left + p, r = {joined('' if begin == '0' else begin, 's')};")
        unit.open(f"if (q < I && r < {end})")
        unit.add(f"{element(access, 'cuda')} whole[{tile.width}];")
        positions = [unit.position(access, self.nest.inner, "q"), unit.position(access, self.nest.reduced, "r")]
        return f"tile_{access.name} + p * {tile.pitch} + s", joined(access.name, *positions)

    def _close(self, unit: KernelSource) -> None:
        unit.close()
        unit.close()


class TransposedVectorWriter(VectorWriter):
    """Like its base class, but loads and stores that are contiguous along the reduced loop R read and write tiles in
    shared memory instead. `row` is C text of the row of the tiles."""

    def __init__(
        self, body: StatementWriter, layout: VectorLayout, slot: str, turning: TransposePlan, row: str
    ) -> None:
        super().__init__(body, layout, slot)
        self.turning, self.row = turning, row

    def wanted(self, exprs: list[Expr]) -> list[Access]:
        return [access for access in super().wanted(exprs) if id(access) not in self.turning.tiles]

    def texts(self) -> dict[int, str]:
        tiles = self.turning.tiles.values()
        turned = {id(tile.access): f"ka_get({self.turning.element(tile.access, self.row)})" for tile in tiles}
        return super().texts() | turned

    def put(self, inner: StatementWriter, part: list[tuple[Access, Output]]) -> None:
        for access, output in part:
            if id(access) in self.turning.tiles:
                self.unit.add(f"ka_put({self.turning.element(access, self.row)}, {inner.name(output.expr)});")
        super().put(inner, [pair for pair in part if id(pair[0]) not in self.turning.tiles])
