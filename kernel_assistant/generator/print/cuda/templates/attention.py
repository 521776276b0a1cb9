"""Writes attention with few queries as one kernel; see docs/language_models.md.

A cluster of blocks has all queries of one key head. Its warps divide the keys. For the keys that it has read, each warp
keeps the largest score, the sum of the exponentials and the weighted sum of values, as in "Online normalizer
calculation for softmax" (arXiv 1805.02867). In the end the warps of a block combine their results in shared memory,
then the blocks of the cluster do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.literals import decoded
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import Size, mul, multiple_of, size_text
from kernel_assistant.generator.loops.attention import ShortAttention
from kernel_assistant.generator.loops.strided import View
from kernel_assistant.generator.print.cuda.common import MOST_REGISTERS, REGISTERS, STATIC_LIMIT
from kernel_assistant.generator.print.render import ELEMENTS, KernelSource, literal
from kernel_assistant.records import Launch
from kernel_assistant.records.graph import DTYPE_BYTES

#: What a search tries.
WARPS, UNROLLS = (2, 4, 8), (1, 2, 4)
#: Bytes of one load, and registers that a thread needs beside queries, sums, keys and values.
LOAD, OTHER_REGISTERS = 16, 48
#: Threads that a multiprocessor has room for.
MOST_RESIDENT = 2048
LARGEST = "3.40282347e38f"
LOG2_E = literal(math.log2(math.e), "float")


@dataclass(frozen=True, slots=True)
class Tile:
    """How the kernel divides the work. Each key is a row of `width` elements of `element` bytes, and `rows` queries
    read it. A cluster has `cluster` blocks of `warps` warps. A thread loads `vector` elements at once (0: 16 bytes),
    and begins to load `unroll` keys before it uses the first one."""

    rows: int
    width: int
    element: int
    vector: int = 0
    cluster: int = 1
    warps: int = 4
    unroll: int = 1

    @property
    def elements(self) -> int:
        """The number of elements of one load."""
        return self.vector or LOAD // self.element

    @property
    def lanes(self) -> int:
        """The number of threads that share a key."""
        return int(min(32, 2 ** math.ceil(math.log2(max(1, math.ceil(self.width / self.elements))))))

    @property
    def pieces(self) -> int:
        """The number of loads of a thread for one key."""
        return math.ceil(self.width / (self.elements * self.lanes))

    @property
    def keys(self) -> int:
        """The number of keys that a warp reads at once."""
        return 32 // self.lanes

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def registers(self) -> int:
        """The estimated number of registers of a thread: for queries and sums, and for keys and values in flight."""
        own = self.pieces * self.elements
        return 2 * self.rows * (own + 1) + 2 * self.unroll * math.ceil(own * self.element / 4) + self.unroll * self.rows

    @property
    def shared(self) -> int:
        """The bytes of shared memory of a block."""
        return 4 * (self.warps + 1) * self.rows * (self.width + 2)

    @property
    def resident(self) -> int:
        """The number of blocks that fit on a multiprocessor at the same time."""
        return max(1, min(MOST_RESIDENT, REGISTERS // (self.registers + OTHER_REGISTERS)) // self.threads)

    @property
    def step(self) -> int:
        """The number of keys that all blocks of a cluster together read in one step."""
        return self.cluster * self.warps * self.keys * self.unroll

    def obstacle(self) -> str:
        """Returns the reason why the kernel cannot be launched; "" if it can."""
        if self.registers + OTHER_REGISTERS > min(MOST_REGISTERS, REGISTERS // self.threads):
            return f"{self.registers} registers for {self.rows} queries of {self.width} elements"
        if self.shared > STATIC_LIMIT:
            return f"{self.shared} bytes of shared memory"
        return ""


def possible(attention: ShortAttention, clusters: Sequence[int]) -> Iterator[Tile]:
    """Yields all tiles with one of these cluster sizes whose kernels can be launched."""
    for cluster, warps, unroll in product(clusters, WARPS, UNROLLS):
        tile = _tile(attention, cluster, warps, unroll)
        if not tile.obstacle():
            yield tile


def _tile(attention: ShortAttention, cluster: int, warps: int, unroll: int) -> Tile:
    vector = _vector(attention.k, attention.v)
    return Tile(attention.rows, attention.width, DTYPE_BYTES[attention.k.dtype], vector, cluster, warps, unroll)


def _vector(*views: View) -> int:
    """Returns the largest number of elements of one load (up to 16 bytes) with which all rows of keys and values
    consist of whole, aligned loads; 1 if there is none."""
    vector = LOAD // DTYPE_BYTES[views[0].dtype]
    along = [pair for view in views for pair in zip(view.sizes[:-1], view.strides[:-1], strict=True)]
    steps: list[Size] = [stride for size, stride in along if size != 1] + [view.sizes[-1] for view in views]
    while vector > 1 and not all(multiple_of(step, vector) for step in steps):
        vector //= 2
    return vector


def emit_attention(attention: ShortAttention, schedule: Schedule, prefix: str) -> tuple[KernelSource, Launch]:
    """Returns the kernel and its launch. Raises Unsupported if the schedule has another form, or if the kernel cannot
    be launched.
    """
    if schedule.form != "attention":
        raise Unsupported(f"schedule {schedule.form} for an attention")
    tile = _tile(attention, schedule["cluster"], schedule["warps"], schedule["unroll"])
    if obstacle := tile.obstacle():
        raise Unsupported(obstacle)
    return _AttentionWriter(attention, tile, prefix).write()


class _AttentionWriter:
    def __init__(self, attention: ShortAttention, tile: Tile, prefix: str) -> None:
        self.attention, self.tile = attention, tile
        self.unit = KernelSource(prefix + "attention", "cuda")
        self.element = ELEMENTS["cuda"][attention.k.dtype]

    def write(self) -> tuple[KernelSource, Launch]:
        unit, tile = self.unit, self.tile
        self._places()
        self._queries()
        unit.open("for (int64_t base = (rank * WARPS + warp) * KEYS; base < keys; base += C * STEP * UNROLL)")
        self._load()
        self._scores()
        self._sums()
        unit.close()
        self._join_lanes()
        self._join_warps()
        self._results()
        cluster = f"__cluster_dims__({tile.cluster}, 1, 1) " if tile.cluster > 1 else ""
        unit.finish(bounds=f"__launch_bounds__({tile.threads}) {cluster}")
        blocks = mul(mul(self.attention.k.sizes[0], self.attention.k.sizes[1]), tile.cluster)
        return unit, unit.launch((size_text(blocks), "1", "1"), tile.threads)

    def _places(self) -> None:
        """Writes the declarations: constants, shared memory, and pointers to the keys and values of the head that this
        thread reads.
        """
        unit, tile, attention = self.unit, self.tile, self.attention
        unit.add(f"constexpr int ROWS = {tile.rows}, QUERIES = {attention.queries}, E = {tile.width};")
        unit.add(f"constexpr int V = {tile.elements}, LANES = {tile.lanes}, PIECES = {tile.pieces};")
        unit.add(f"constexpr int C = {tile.cluster}, WARPS = {tile.warps}, UNROLL = {tile.unroll};")
        unit.add("constexpr int KEYS = 32 / LANES, STEP = WARPS * KEYS;")
        unit.add("// What each warp has found, then the block: largest scores, sums of exponentials, sums of values.")
        unit.add("__shared__ float tops[WARPS + 1][ROWS], totals[WARPS + 1][ROWS], sums[WARPS + 1][ROWS * E];")
        unit.add(f"const int64_t keys = {unit.size(attention.k.sizes[2])};")
        unit.add(f"const int64_t heads = {unit.size(attention.k.sizes[1])};")
        unit.add("const int64_t head = blockIdx.x / C % heads, item = blockIdx.x / C / heads;")
        unit.add("const int lane = threadIdx.x % LANES, warp = threadIdx.x / 32, own = threadIdx.x % 32 / LANES;")
        unit.add(f"const int rank = {'blockIdx.x % C' if tile.cluster > 1 else '0'};")
        for name, view in (("k", attention.k), ("v", attention.v)):
            offset = self._at(view, "item", "head", "0")
            unit.add(f"const {self.element}* const {name} = {unit.buffer(view.root)} + {offset};")

    def _at(self, view: View, item: str, head: str, row: str, column: str = "0") -> str:
        """Returns C text of the position of element [item, head, row, column] in the buffer of `view`."""
        parts = [
            f"{self.unit.size(stride)} * ({index})" if stride != 1 else f"({index})"
            for index, stride in zip((item, head, row, column), view.strides, strict=True)
            if stride != 0 and index != "0"
        ]
        return " + ".join(parts) or "0"

    def _each(self, line: str, *loops: tuple[str, str]) -> None:
        """Writes the statement `line` inside unrolled loops, one for each (variable, count)."""
        for name, count in loops:
            self.unit.add("#pragma unroll")
            self.unit.open(f"for (int {name} = 0; {name} < {count}; ++{name})")
        self.unit.add(line)
        for _ in loops:
            self.unit.close()

    def _queries(self) -> None:
        """Writes the loads of this thread's elements of all queries. Queries are multiplied by the scale and by
        log2(e), so that exponentials of scores are powers of two.
        """
        unit, attention = self.unit, self.attention
        scale = decoded(attention.scale, attention.node.op)
        factor = "1 / sqrtf(E)" if scale is None else literal(scale, "float")  # type: ignore[arg-type]
        unit.add(f"const float scale = {LOG2_E} * {factor};")
        unit.add("float q[ROWS][PIECES * V], sum[ROWS][PIECES * V], top[ROWS], total[ROWS];")
        unit.add("#pragma unroll")
        unit.open("for (int r = 0; r < ROWS; ++r)")
        unit.add("top[r] = -INFINITY, total[r] = 0;")
        unit.add("#pragma unroll")
        unit.open("for (int i = 0; i < PIECES * V; ++i)")
        unit.add("const int column = (i / V * LANES + lane) * V + i % V;")
        position = self._at(attention.q, "item", self._head("r"), "r % QUERIES", "column")
        value = f"ka_get({unit.buffer(attention.q.root)}[{position}]) * scale"
        unit.add(f"q[r][i] = {f'column < E ? {value} : 0' if self._is_ragged else value};")
        unit.add("sum[r][i] = 0;")
        unit.close()
        unit.close()

    def _head(self, row: str) -> str:
        """Returns C text of the query head of a query. `row` is C text of the query's index among all queries that read
        the keys of this block."""
        return f"head * {self.attention.group} + {row} / QUERIES"

    @property
    def _is_ragged(self) -> bool:
        """Whether the loads of all threads cover more elements than a key has, so that each needs a bounds check."""
        tile = self.tile
        return tile.width != tile.elements * tile.lanes * tile.pieces

    def _load(self) -> None:
        unit, attention = self.unit, self.attention
        unit.add(f"{self.element} each_k[UNROLL][PIECES][V], each_v[UNROLL][PIECES][V];")
        for name, view in (("k", attention.k), ("v", attention.v)):
            offset = self._at(view, "0", "0", "key", "column")
            unit.add("#pragma unroll")
            unit.open("for (int u = 0; u < UNROLL; ++u)")
            unit.add("const int64_t key = base + u * (C * STEP) + own;")
            unit.add("#pragma unroll")
            unit.open("for (int p = 0; p < PIECES; ++p)")
            unit.add("const int column = (p * LANES + lane) * V;")
            inside = "key < keys && column < E" if self._is_ragged else "key < keys"
            unit.add(f"if ({inside}) ka_load_whole<V>(each_{name}[u][p], {name} + {offset});")
            unit.add(f"else ka_fill<V>(each_{name}[u][p], {self.element}(0));")
            unit.close()
            unit.close()

    def _scores(self) -> None:
        unit = self.unit
        unit.add("float score[UNROLL][ROWS];")
        unit.add("#pragma unroll")
        unit.open("for (int u = 0; u < UNROLL; ++u)")
        unit.add("const int64_t key = base + u * (C * STEP) + own;")
        unit.add("#pragma unroll")
        unit.open("for (int r = 0; r < ROWS; ++r)")
        unit.add("float all = 0;")
        self._each("all = fmaf(q[r][i], ka_get(each_k[u][i / V][i % V]), all);", ("i", "PIECES * V"))
        unit.add("#pragma unroll")
        unit.add("for (int mask = LANES / 2; mask > 0; mask /= 2) all += ka_across(all, mask);")
        self._mask()
        unit.add("score[u][r] = key < keys ? all : -INFINITY;")
        unit.close()
        unit.close()

    def _mask(self) -> None:
        unit, mask = self.unit, self.attention.mask
        if self.attention.causal:
            unit.add("if (key > r % QUERIES) all = -INFINITY;")
        if mask is None:
            return
        position = self._at(mask, "item", self._head("r"), "r % QUERIES", "key")
        value = f"ka_get({unit.buffer(mask.root)}[{position}])"
        if mask.dtype == "b1":
            unit.add(f"if (key < keys && !{value}) all += -INFINITY;")
        else:
            # A finite mask stays finite: all keys with the least number have equal shares.
            unit.add(f"const float extra = key < keys ? {value} : 0;")
            unit.add(f"const float bound = ka_min(ka_max(extra * {LOG2_E}, -{LARGEST}), {LARGEST});")
            unit.add("all += isinf(extra) ? extra : bound;")

    def _sums(self) -> None:
        unit = self.unit
        unit.add("#pragma unroll")
        unit.open("for (int r = 0; r < ROWS; ++r)")
        unit.add("float high = top[r];")
        self._each("high = fmaxf(high, score[u][r]);", ("u", "UNROLL"))
        unit.add("const float zero = high == -INFINITY ? 0 : high, kept = exp2f(top[r] - zero);")
        unit.add("top[r] = high;")
        unit.add("total[r] *= kept;")
        self._each("sum[r][i] *= kept;", ("i", "PIECES * V"))
        unit.add("#pragma unroll")
        unit.open("for (int u = 0; u < UNROLL; ++u)")
        unit.add("const float share = exp2f(score[u][r] - zero);")
        unit.add("total[r] += share;")
        self._each("sum[r][i] = fmaf(share, ka_get(each_v[u][i / V][i % V]), sum[r][i]);", ("i", "PIECES * V"))
        unit.close()
        unit.close()

    def _join_lanes(self) -> None:
        """Writes the code that combines the results of the threads of a warp, which read different keys, and stores
        them in shared memory.
        """
        unit = self.unit
        if self.tile.keys > 1:
            unit.add("#pragma unroll")
            unit.open("for (int mask = LANES; mask < 32; mask *= 2)")
            unit.add("#pragma unroll")
            unit.open("for (int r = 0; r < ROWS; ++r)")
            unit.add("const float other = ka_across(top[r], mask), high = fmaxf(top[r], other);")
            unit.add("const float zero = high == -INFINITY ? 0 : high;")
            unit.add("const float mine = exp2f(top[r] - zero), theirs = exp2f(other - zero);")
            unit.add("total[r] = total[r] * mine + ka_across(total[r], mask) * theirs;")
            line = "sum[r][i] = sum[r][i] * mine + ka_across(sum[r][i], mask) * theirs;"
            self._each(line, ("i", "PIECES * V"))
            unit.add("top[r] = high;")
            unit.close()
            unit.close()
        unit.open("if (own == 0)")
        unit.add("#pragma unroll")
        unit.open("for (int r = 0; r < ROWS; ++r)")
        unit.add("if (lane == 0) tops[warp][r] = top[r], totals[warp][r] = total[r];")
        unit.add("#pragma unroll")
        unit.open("for (int i = 0; i < PIECES * V; ++i)")
        unit.add("const int column = (i / V * LANES + lane) * V + i % V;")
        inside = "if (column < E) " if self._is_ragged else ""
        unit.add(f"{inside}sums[warp][r * E + column] = sum[r][i];")
        for _ in range(3):
            unit.close()
        unit.add("__syncthreads();")

    def _join_warps(self) -> None:
        unit = self.unit
        unit.open(f"for (int at = threadIdx.x; at < ROWS * E; at += {self.tile.threads})")
        unit.add("const int r = at / E;")
        self._joined("WARPS", "tops[one][r]", "totals[one][r]", "sums[one][at]")
        unit.add("sums[WARPS][at] = value;")
        unit.add("if (at % E == 0) tops[WARPS][r] = high, totals[WARPS][r] = all;")
        unit.close()

    def _joined(self, count: str, top: str, total: str, value: str) -> None:
        """Writes the code that combines `count` partial results. `top`, `total` and `value` are C texts of partial
        result number `one`: largest score, sum of exponentials, sum of values. The variables `all` and `value` hold the
        combined sums.
        """
        unit = self.unit
        unit.add("float high = -INFINITY, all = 0, value = 0;")
        unit.add(f"for (int one = 0; one < {count}; ++one) high = fmaxf(high, {top});")
        unit.add("const float zero = high == -INFINITY ? 0 : high;")
        unit.open(f"for (int one = 0; one < {count}; ++one)")
        unit.add(f"const float factor = exp2f({top} - zero);")
        unit.add(f"all += factor * {total};")
        unit.add(f"value += factor * {value};")
        unit.close()

    def _results(self) -> None:
        """Writes the code that combines the results of the blocks of a cluster, each block for some elements of the
        output. A query whose keys are all masked gives 0.
        """
        unit, tile, attention = self.unit, self.tile, self.attention
        unit.add("ka_cluster_barrier();" if tile.cluster > 1 else "__syncthreads();")
        unit.open(f"for (int at = rank * {tile.threads} + threadIdx.x; at < ROWS * E; at += C * {tile.threads})")
        unit.add("const int r = at / E;")
        if tile.cluster > 1:
            positions = ("&tops[WARPS][r]", "&totals[WARPS][r]", "&sums[WARPS][at]")
            self._joined("C", *(f"ka_remote({position}, one)" for position in positions))
        else:
            unit.add("const float all = totals[WARPS][r], value = sums[WARPS][at];")
        position = self._at(attention.out, "item", self._head("r"), "r % QUERIES", "at % E")
        unit.add(f"ka_put({unit.buffer('out0')}[{position}], all == 0 ? 0 : value / all);")
        unit.close()
        if tile.cluster > 1:
            unit.add("ka_cluster_barrier();")
