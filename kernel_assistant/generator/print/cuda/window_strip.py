"""Writes windows whose threads compute `strip` neighbouring outputs of `rows` rows. Vectors of the input are loaded
into registers, from memory or through the warp's shared memory, and overlapping windows share partial results.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Span
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.windows_plan import WindowBody
from kernel_assistant.generator.lower.moving import JOIN
from kernel_assistant.generator.print.cpu.window import neutral_text
from kernel_assistant.generator.print.cuda.common import STATIC_LIMIT, scope_loads
from kernel_assistant.generator.print.cuda.strip_reach import WARP, WindowExtent, reach_of
from kernel_assistant.generator.print.cuda.strip_read import GlobalStripReader, SharedStripReader
from kernel_assistant.generator.print.cuda.strip_store import Loops, StripStores
from kernel_assistant.generator.print.cuda.window import FULL_ENOUGH, UNROLLED, DirectWindow, unweighted
from kernel_assistant.generator.print.render import KernelSource, unsigned
from kernel_assistant.records import Launch

#: Blocks of a row from which those in its middle have text of their own, without tests.
WITH_MIDDLE = 4


def emit_strip(nest: LoopNest, schedule: Schedule) -> tuple[KernelSource, Launch]:
    return StripWindow(nest, schedule).write()


class StripWindow(DirectWindow):
    def __init__(self, nest: LoopNest, schedule: Schedule) -> None:
        super().__init__(nest, schedule)
        unweighted(self.plan, "strips")
        self.stage = bool(schedule["stage"])
        self.reaches = [reach_of(nest, part, self.strip) for part in self.plan.parts]
        self.length = self.reaches[0].outputs
        if self.strip > self.length:
            raise Unsupported(f"strips of {self.strip} outputs in rows of {self.length}")
        # Rows of outputs that fill warps but not a block: several rows for a block.
        self.threads = -(-self.length // self.strip)
        self.width = -(-self.threads // WARP) * WARP
        fills = self.threads >= FULL_ENOUGH * self.width
        self.folded = fills and self.width < self.block and self.block % self.width == 0
        self.tiled = self.tiled or self.folded
        if self.stage and not self.tiled:
            raise Unsupported("a warp's piece of a row, where rows of outputs do not fill blocks")
        beyond = self.length % self.strip > 0 or (self.stage and self.threads % WARP > 0)
        self.stores = StripStores(self.unit, nest, self.plan, self.strip, self.length, beyond, self.block * self.tiled)
        # Warps that exchange elements go on as a whole.
        self.whole = self.stage or bool(self.stores.turned)
        self.leaves = not self.whole
        kind = SharedStripReader if self.stage else GlobalStripReader
        self.readers = [
            kind(self.unit, nest, part, reach, self._last())
            for part, reach in zip(self.plan.parts, self.reaches, strict=True)
        ]
        self.pieces = [reader for reader in self.readers if isinstance(reader, SharedStripReader)]
        shared = self.stores.bytes + sum(piece.bytes(self.block) for piece in self.pieces)
        if shared > STATIC_LIMIT:
            raise Unsupported(f"{shared} bytes of shared memory for a warp's piece of a row")

    def flat(self) -> str:
        """Writes the lines that compute which strip a thread computes, with the threads numbered through the strips of
        all rows. They need only one 64-bit division; row numbers have 32 bits. Returns the number of blocks as C text.
        """
        self.unit.add(f"const int64_t g = (int64_t)blockIdx.x * {self.block} + threadIdx.x;")
        self.unit.add(f"const int below = (int)(g / {self.threads});")
        self.unit.add(f"const int i = (int)(g - (int64_t)below * {self.threads}) * {self.strip};")
        return f"cdiv({self.threads} * {self._rows_below()}, {self.block})"

    def tiles(self) -> str:
        if not self.folded:
            return super().tiles()
        each = self.block // self.width
        self.unit.add(f"const int below = (int)(blockIdx.x * {unsigned(each)} + threadIdx.x / {unsigned(self.width)});")
        blocks = f"cdiv({self._rows_below()}, {each})"
        self.own()
        if self.leaves and self.threads != self.width:
            self.unit.add(f"if (i >= {self.length}) return;")
        return blocks

    def _rows_below(self) -> str:
        """Declares the index of the thread's first row of outputs; threads behind the last row return. Returns the
        number of row groups as text.
        """
        unit, bands, rest = self.unit, self.bands(), self.nest.size(self.rest)
        unit.add(f"if (below >= {bands} * ({unit.size(rest)})) return;")
        unit.add_if_used("o", f"const int o = below{f' / {bands}' if self.row else ''};")
        if self.row is not None:
            unit.add(f"const int first = below % {bands} * {self.rows};")
        return f"{bands} * ({size_text(rest)})"

    def own(self) -> None:
        unit, last = self.unit, self._last()
        begin, thread = ("", f"threadIdx.x % {unsigned(self.width)}") if self.folded else ("begin + ", "threadIdx.x")
        if not self.whole:
            unit.add(f"const int i = {begin}(int)({thread}) * {self.strip};")
            return
        unit.add("const int lane = threadIdx.x & 31;")
        unit.add(f"const int piece = {begin}(int)({thread} & ~31u) * {self.strip};")
        if self.threads % self.block and not self.folded:
            unit.add(f"if (piece >= {self.length}) return;")
        i = f"piece + lane * {self.strip}"
        # From memory, threads without outputs compute the last ones once more; a piece has room for theirs.
        again = not self.stage and self.threads % WARP > 0
        unit.add_if_used("i", f"const int i = {f'{i} < {last} ? {i} : {last}' if again else i};")

    def _last(self) -> int:
        """Returns the index of the first output of the last strip of a row."""
        return (self.threads - 1) * self.strip

    def window(self, part: WindowBody) -> None:
        unit, number, reach = self.unit, part.number, self.reaches[part.number]
        unit.add(f"{part.window.ctype} w{number}[{self.rows}][{self.strip}];")
        self._each("t", self.rows)
        self._each("s", self.strip)
        unit.add(f"w{number}[t][s] = {neutral_text(part)};")
        self.body.write(part.steady, scope_loads(unit, self.nest), "s")
        if number == 0:
            self.stores.declare()
            for piece in self.pieces:
                piece.declare(self.block)
        reader = self.readers[number]
        middle = self.tiled and not self.stage and reader.edges and self.threads >= WITH_MIDDLE * self.block
        if middle:
            ahead = (self.block - 1) * self.strip * reach.stride + reader.count * reach.vec
            unit.add(f"const int low{number} = {reach.start('begin')};")
            unit.open(f"if (low{number} >= 0 && low{number} + {ahead} <= {reach.size})")
            self.walk(part, tested=False)
            unit.close()
        unit.open("else" if middle else "")
        self.walk(part, tested=reader.edges)
        unit.close()

    def _each(self, variable: str, count: int, block: bool = False) -> None:
        """Begins an unrolled loop over the next statement, or with `block` over a block in braces."""
        self.unit.add("#pragma unroll")
        head = f"for (int {variable} = 0; {variable} < {count}; ++{variable})"
        if block:
            self.unit.open(head)
        else:
            self.unit.add(head)

    def walk(self, part: WindowBody, tested: bool) -> None:
        """Writes the loops over all rows of the input that the windows cover; with `tested`, some vectors may be
        outside their row.
        """
        unit, number, reach = self.unit, part.number, self.reaches[part.number]
        band = next((span for span in part.spans if self.row is not None and span.out is self.row), None)
        unrolled = self._rows_read(part, band) * reach.held <= UNROLLED
        self.exists = []
        for dim, span in enumerate(part.spans):
            if span is not band:
                self.loop(part, f"at{number}_{dim}", span, unrolled)
        if band is not None:
            self.band(f"at{number}_{part.spans.index(band)}", band, unrolled)
        self.readers[number].write(self.body, tested)
        self._overlapping(part, reach)
        self.join(part, band)
        for _ in part.spans:
            unit.close()

    def _rows_read(self, part: WindowBody, band: Span | None) -> int:
        count = 1
        for span in part.spans:
            count *= (
                span.size if span is not band else (self.rows - 1) * span.stride + (span.size - 1) * span.dilation + 1
            )
        return count

    def place(self, at: str, place: str, span: Span, unrolled: bool, tested: bool) -> None:
        """Declares the variable `at` with the value of the C text `place`. In unrolled code, a row outside the input is
        read as row 0 and its value is not used."""
        if not (unrolled and tested):
            super().place(at, place, span, unrolled, tested)
            return
        self.unit.add(f"const int {at}_ = {place};")
        self.unit.add(f"const bool in_{at} = (unsigned){at}_ < {unsigned(span.source.size)};")
        self.unit.add(f"const int {at} = in_{at} ? {at}_ : 0;")
        self.exists.append(f"in_{at}")

    def _overlapping(self, part: WindowBody, reach: WindowExtent) -> None:
        """Writes the computation of the windows along the row, into x[strip]. Overlapping windows share partial results
        over pairs, fours, eights, … of elements of v that are `dilation` apart.
        """
        unit, ctype, join = self.unit, part.window.ctype, JOIN[part.window.kind]
        width, before, names = 1, "v", {1: "v"}
        while 2 * width <= reach.taps:
            name, count = f"v{2 * width}", reach.held - (2 * width - 1) * reach.dilation
            unit.add(f"{ctype} {name}[{count}];")
            self._each("j", count)
            unit.add(f"{name}[j] = {join.format(f'{before}[j]', f'{before}[j + {width * reach.dilation}]')};")
            width, before = 2 * width, name
            names[width] = name
        value, done = "", 0
        while done < reach.taps:
            at = f"s * {reach.stride} + {done * reach.dilation}"
            value = join.format(value, f"{names[width]}[{at}]") if value else f"{names[width]}[{at}]"
            done += width
            while width > 1 and width > reach.taps - done:
                width //= 2
        exists = " && ".join(self.exists)
        unit.add(f"{ctype} x[{self.strip}];")
        self._each("s", self.strip)
        unit.add(f"x[s] = {f'{exists} ? {value} : {neutral_text(part)}' if exists else value};")

    def join(self, part: WindowBody, band: Span | None) -> None:
        unit = self.unit
        to = f"w{part.number}[t][s]"
        step = f"{to} = {JOIN[part.window.kind].format(to, 'x[s]')};"
        self._each("t", self.rows, block=True)
        if band is not None:
            reach = (band.size - 1) * band.dilation
            unit.add(f"const int above = b - t * {band.stride};")
            unit.open(f"if (above >= 0 && above <= {reach} && above % {band.dilation} == 0)")
        self._each("s", self.strip)
        unit.add(step)
        if band is not None:
            unit.close()
        unit.close()

    def outputs(self) -> None:
        unit, nest, plan = self.unit, self.nest, self.plan
        loops: Loops = []
        if self.row is not None:
            self._each("t", self.rows, block=True)
            unit.add("const int row = first + t;")
            unit.add(f"if (row >= {self.row.size}) continue;")
            loops = [([self.row], "row")]
        body = self.body.inner()
        body.write(plan.steady, scope_loads(unit, nest, *loops), "s")
        self.stores.open(loops)
        self._each("s", self.strip, block=True)
        unit.add_if_used("e", "const int e = i + s;")
        inner = body.inner()
        inner.names.update((id(p.window), f"w{p.number}[{'t' if self.row else 0}][s]") for p in plan.parts)
        inner.write(plan.body, self.stores.texts(loops))
        self.stores.put(inner, loops)
        unit.close()
        self.stores.close(loops)
        if self.row is not None:
            unit.close()
