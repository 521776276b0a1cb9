"""Writes CUDA code for poolings and depthwise convolutions that first copy their input rows to shared memory. Each
element is read once, by neighbouring threads, for any stride. The elementwise operators in front are computed once an
element.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Span
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.windows_plan import WindowBody
from kernel_assistant.generator.lower.moving import JOIN
from kernel_assistant.generator.print.cpu.window import digit, neutral_text, position
from kernel_assistant.generator.print.cuda.common import STATIC_LIMIT, scope_loads
from kernel_assistant.generator.print.cuda.window import MOST_BAND, UNROLLED_ROW, DirectWindow, unweighted, used_rows
from kernel_assistant.generator.print.render import KernelSource, pointers, unsigned
from kernel_assistant.records import Launch

BYTES = {"float": 4, "double": 8, "int64_t": 8, "bool": 1}


def emit_shared(nest: LoopNest, schedule: Schedule) -> tuple[KernelSource, Launch]:
    return SharedWindow(nest, schedule).write()


class SharedWindow(DirectWindow):
    """Writes kernels in which a block computes `block` neighbouring outputs of `rows` rows; `unroll` rows of the input
    are copied at a time."""

    leaves = False

    def write(self) -> tuple[KernelSource, Launch]:
        unit, nest, plan, block = self.unit, self.nest, self.plan, self.block
        unweighted(plan, "shared memory")
        size = nest.size(nest.inner)
        if not isinstance(size, int) or any(part.last is None for part in plan.parts):
            raise Unsupported("windows that do not move along the inner loop")
        blocks = self.tiles()
        unit.add("int parity = 0;")
        pointers(unit, nest, self.rest, "o")
        shared = sum(self._bytes(part) for part in plan.parts)
        if shared > STATIC_LIMIT:
            raise Unsupported(f"{shared} bytes of shared memory for the rows of a window")
        for part in plan.parts:
            self.window(part)
        unit.open(f"if (i < {size})")
        self.outputs()
        unit.close()
        unit.finish(bounds=f"__launch_bounds__({block}) ")
        return unit, unit.launch((blocks, "1", "1"), block)

    def _length(self, part: WindowBody) -> int:
        assert part.last is not None
        last = part.last
        return (self.block - 1) * last.stride + (last.size - 1) * last.dilation + 1

    def _depth(self, part: WindowBody) -> int:
        """Returns the number of input rows that are copied to shared memory together."""
        return self.schedule["unroll"] if part.spans else 1

    def _bytes(self, part: WindowBody) -> int:
        return 2 * self._depth(part) * self._padded(part) * BYTES[part.window.ctype]

    def _padded(self, part: WindowBody) -> int:
        return self._length(part) * 33 // 32 + 1

    def _slot(self, part: WindowBody, j: str) -> str:
        """Returns C text of the index of element j in a row of shared memory. With an even stride, one element stays
        unused after every 32, to avoid bank conflicts.
        """
        assert part.last is not None
        return f"({j}) + (({j}) >> 5)" if part.last.stride % 2 == 0 else j

    def window(self, part: WindowBody) -> None:
        unit, number = self.unit, part.number
        unit.add(f"{part.window.ctype} w{number}[{self.rows}];")
        unit.add("#pragma unroll")
        unit.add(f"for (int t = 0; t < {self.rows}; ++t) w{number}[t] = {neutral_text(part)};")
        self.body.write(part.steady, scope_loads(unit, self.nest), "s")
        unit.add(f"__shared__ {part.window.ctype} rows{number}[2][{self._depth(part)}][{self._padded(part)}];")
        band = part.spans[-1] if part.spans else None
        for dim, span in enumerate(part.spans[:-1]):
            self.loop(part, f"at{number}_{dim}", span, unrolled=False)
        self._staged(part, band)
        for _ in part.spans[:-1]:
            unit.close()

    def _staged(self, part: WindowBody, band: Span | None) -> None:
        unit, depth = self.unit, self._depth(part)
        used = 1 if band is None else used_rows(band, self.rows)
        if used.bit_length() > MOST_BAND:
            raise Unsupported(f"{self.rows} rows of outputs look at {used.bit_length()} rows of the input")
        unit.open(f"for (int above = 0; above < {used.bit_length()}; above += {depth}, parity ^= 1)")
        self._rows(part, band, used)
        self._stage(part)
        unit.close()
        unit.add("__syncthreads();")
        self._rows(part, band, used)
        self._reduce(part, band)
        unit.close()
        unit.close()

    def _rows(self, part: WindowBody, band: Span | None, used: int) -> None:
        """Opens the loop over the input rows that are copied together; the caller closes it. Rows outside of the input,
        and rows that no window of the band reads (bits of `used` that are 0), are skipped by all threads."""
        unit, depth = self.unit, self._depth(part)
        unit.add("#pragma unroll")
        unit.open(f"for (int u = 0; u < {depth}; ++u)")
        if band is None:
            return
        at = f"at{part.number}_{len(part.spans) - 1}"
        unit.add("const int b = above + u;")
        if used.bit_length() % depth or used.bit_count() < used.bit_length():
            unit.add(f"if (b >= {used.bit_length()} || !({used:#x}ull >> b & 1)) continue;")
        out = "first" if self.row is not None else digit(unit, self.rest, band.out, "o")
        start = position(out if out in ("0", "o", "first") else f"(int)({out})", band, "")
        unit.add(f"const int {at} = {start} + b;")
        unit.add(f"if ((unsigned){at} >= {unsigned(band.source.size)}) continue;")

    def _stage(self, part: WindowBody) -> None:
        unit, last = self.unit, part.last
        assert last is not None
        length = self._length(part)
        unit.add("#pragma unroll 4")
        unit.open(f"for (int j = threadIdx.x; j < {length}; j += {self.block})")
        unit.add(f"const int p = {position('begin', last, '')} + j;")
        unit.add(f"const bool in = (unsigned)p < {unsigned(last.source.size)};")
        inner = self.body.inner()
        inner.write(part.body, self.guarded(part, "in"))
        value = f"in ? {inner.name(part.window.arg)} : {neutral_text(part)}"
        unit.add(f"rows{part.number}[parity][u][{self._slot(part, 'j')}] = {value};")
        unit.close()

    def _reduce(self, part: WindowBody, band: Span | None) -> None:
        unit, last, number = self.unit, part.last, part.number
        assert last is not None
        unit.add(f"{part.window.ctype} x = {neutral_text(part)};")
        if last.size <= UNROLLED_ROW:
            unit.add("#pragma unroll")
        unit.open(f"for (int k = 0; k < {last.size}; ++k)")
        unit.add(f"const int j = threadIdx.x * {last.stride} + k * {last.dilation};")
        slot = self._slot(part, "j")
        unit.add(f"x = {JOIN[part.window.kind].format('x', f'rows{number}[parity][u][{slot}]')};")
        unit.close()
        self.join(part, band if self.rows > 1 else None)
