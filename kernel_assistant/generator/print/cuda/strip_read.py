"""Writes code that loads the elements that the windows of a strip cover into registers: directly from memory, or
through shared memory that belongs to the warp.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Axis
from kernel_assistant.generator.loops.nest import Access, LoopNest
from kernel_assistant.generator.loops.windows_plan import WindowBody
from kernel_assistant.generator.print.cpu.window import neutral_text
from kernel_assistant.generator.print.cuda.strip_reach import BANKS, WARP, WIDEST, WindowExtent, vectored
from kernel_assistant.generator.print.cuda.window_shared import BYTES
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, element, joined, unsigned
from kernel_assistant.records.graph import DTYPE_BYTES

#: Bytes that the hardware computes on.
WORD = 4


class GlobalStripReader:
    """Writes code that fills the C array v[held] with the elements of an input row that the windows of a strip (several
    neighbouring outputs) cover. The strip begins at output `i`, of which `last` is the largest value.

    The C variables at<window>_<dimension> have the position of the input row.
    """

    def __init__(self, unit: KernelSource, nest: LoopNest, part: WindowBody, reach: WindowExtent, last: int) -> None:
        self.unit, self.nest, self.part, self.reach = unit, nest, part, reach
        self.low, self.high = reach.outside(reach.strip, last)
        self.count = reach.vectors(reach.strip)
        self.wide = vectored(nest, part, reach.axes)
        #: Whether some vectors of a strip may be outside the row.
        self.edges = self.low > 0 or self.high < self.count

    def each(self, variable: str, count: int) -> None:
        """Begins an unrolled loop with `count` iterations."""
        self.unit.add("#pragma unroll")
        self.unit.open(f"for (int {variable} = 0; {variable} < {count}; ++{variable})")

    def write(self, body: StatementWriter, tested: bool) -> None:
        """Writes the declaration of the array v and the loads that fill it; with `tested`, elements outside the row
        become the neutral value."""
        unit, reach, vec = self.unit, self.reach, self.reach.vec
        unit.add(f"{self.part.window.ctype} v[{reach.held}];")
        unit.add(f"const int start = {reach.start('i')};")
        self.each("c", self.count)
        unit.add(f"const int q = start + c * {vec};")
        if tested:
            sure = [f"c >= {self.low}"] * (self.low > 0) + [f"c < {self.high}"] * (self.high < self.count)
            unit.add(f"const bool in = ({' && '.join(sure)}) || (unsigned)q < {unsigned(reach.size)};")
        unit.add_if_used("base", f"const int base = {'in ? q : 0' if tested else 'q'};")
        for access in self.wide:
            unit.add(f"{element(access, 'cuda')} l_{access.name}[{vec}];")
            self.load(access, f"l_{access.name}")
        self.each("u", vec)
        unit.add(f"const int j = c * {vec} + u - {reach.lead};")
        unit.open(f"if (j >= 0 && j < {reach.held})")
        unit.add(f"v[j] = {self.value(body, '', 'in' if tested else '')};")
        unit.close()
        unit.close()
        unit.close()

    def load(self, access: Access, to: str) -> None:
        """Writes the load of the vector at `base` into `to`. Elements narrower than a word are loaded as a whole
        vector, because the compiler would split the vector into words. For wider elements the compiler drops unused
        elements by itself.
        """
        vec = self.reach.vec
        kind = f"ka_load_whole<{vec}>" if DTYPE_BYTES[access.dtype] < WORD else f"ka_load<{vec}, 0>"
        row = joined(access.name, *(self.unit.position(access, *loop) for loop in self._rows()))
        self.unit.add(f"{kind}({to}, {row} + base);")

    def _rows(self) -> list[tuple[list[Axis], str]]:
        return [([span.source], f"at{self.part.number}_{dim}") for dim, span in enumerate(self.part.spans)]

    def value(self, body: StatementWriter, slot: str, inside: str) -> str:
        """Returns C text of the window's argument at element u of the vector that begins at `base`; the vector is in
        l_<buffer><slot>.
        """
        unit, wide = self.unit, {id(access) for access in self.wide}
        unit.add_if_used("p", "const int p = base + u;")
        texts = {}
        for access in dict.fromkeys(self.nest.loads.values()):
            if id(access) in wide:
                texts[id(access)] = f"ka_get(l_{access.name}{slot}[u])"
                continue
            loops = [*self._rows(), (self.reach.axes, "p")]
            texts[id(access)] = unit.fetch(access, joined(*(unit.position(access, *loop) for loop in loops)))
        inner = body.inner()
        inner.write(self.part.body, texts)
        value = inner.name(self.part.window.arg)
        return f"{inside} ? {value} : {neutral_text(self.part)}" if inside else value


class SharedStripReader(GlobalStripReader):
    """Like its base class, but neighbouring threads of a warp load neighbouring vectors into shared memory, from which
    v is filled. The strips of the warp begin at output `piece`.

    Rows of shared memory leave out 16 bytes after each line of banks, so that strips of several vectors do not cause
    bank conflicts.
    """

    def __init__(self, unit: KernelSource, nest: LoopNest, part: WindowBody, reach: WindowExtent, last: int) -> None:
        super().__init__(unit, nest, part, reach, last)
        self.edges = True
        self.quad, self.line = WIDEST // BYTES[part.window.ctype], BANKS // BYTES[part.window.ctype]
        self.brought = reach.vectors(WARP * reach.strip)
        last_read = self.brought * reach.vec + self.quad - 1
        #: Elements of a warp.
        self.room = -(-(last_read + last_read // self.line * self.quad + 1) // self.quad) * self.quad

    def bytes(self, block: int) -> int:
        return self.room * block // WARP * BYTES[self.part.window.ctype]

    def declare(self, block: int) -> None:
        ctype, number = self.part.window.ctype, self.part.number
        self.unit.add(f"__shared__ __align__({WIDEST}) {ctype} rows{number}[{self.room * block // WARP}];")
        self.unit.add(f"{ctype}* const mine{number} = rows{number} + (threadIdx.x >> 5) * {self.room};")

    def _slot(self, j: str) -> str:
        return f"mine{self.part.number} + ({j} + {j} / {unsigned(self.line)} * {unsigned(self.quad)})"

    def write(self, body: StatementWriter, tested: bool) -> None:
        """Writes code that loads the elements of the whole warp and fills v. Each vector is loaded after a bounds
        check, whatever `tested` is.
        """
        unit, reach = self.unit, self.reach
        turns = -(-self.brought // WARP)
        unit.add(f"{self.part.window.ctype} v[{reach.held}];")
        unit.add(f"const int start = {reach.start('piece')};")
        for access in self.wide:
            unit.add(f"{element(access, 'cuda')} l_{access.name}[{turns}][{reach.vec}];")
        # All loads first, so that none waits for shared memory.
        for loads in (True, False):
            self.each("n", turns)
            unit.add("const unsigned c = n * 32 + lane;")
            unit.add(f"const int q = start + (int)c * {reach.vec};")
            unit.add(f"const bool in = (unsigned)q < {unsigned(reach.size)};")
            unit.add_if_used("base", "const int base = in ? q : 0;")
            if loads:
                for access in self.wide:
                    self.load(access, f"l_{access.name}[n]")
            else:
                self._put(body)
            unit.close()
        unit.add("__syncwarp();")
        self._take()
        unit.add("__syncwarp();")

    def _put(self, body: StatementWriter) -> None:
        unit, vec, quad = self.unit, self.reach.vec, min(self.reach.vec, self.quad)
        unit.add(f"{self.part.window.ctype} y[{vec // quad}][{quad}];")
        self.each("u", vec)
        unit.add(f"y[u / {quad}][u % {quad}] = {self.value(body, '[n]', 'in')};")
        unit.close()
        self.each("u", vec // quad)
        unit.add(f"const unsigned j = c * {vec} + u * {quad};")
        unit.add(f"if (c < {self.brought}) ka_store<{quad}, 0>({self._slot('j')}, y[u]);")
        unit.close()

    def _take(self) -> None:
        unit, reach, step = self.unit, self.reach, self.reach.strip * self.reach.stride
        quad = 1 if step % self.quad else self.quad
        self.each("c", -(-(reach.lead + reach.held) // quad))
        unit.add(f"const unsigned from = lane * {step} + c * {quad};")
        unit.add(f"{self.part.window.ctype} y[{quad}];")
        unit.add(f"ka_load<{quad}, 0>(y, {self._slot('from')});")
        self.each("u", quad)
        unit.add(f"const int j = c * {quad} + u - {reach.lead};")
        unit.add(f"if (j >= 0 && j < {reach.held}) v[j] = y[u];")
        unit.close()
        unit.close()
