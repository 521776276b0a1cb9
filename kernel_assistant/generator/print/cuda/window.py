"""Writes windows (poolings, depthwise convolutions). A thread computes the outputs of `rows` rows at one position, so
that input rows shared by their windows are read once; neighbouring threads read neighbouring elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Axis, Span
from kernel_assistant.generator.ir.named import ceil_div
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.windows_plan import WindowBody, WindowPlan, plan_windows, varying
from kernel_assistant.generator.lower.moving import JOIN
from kernel_assistant.generator.lower.spans import always_inside
from kernel_assistant.generator.print.cpu.window import digit, neutral_text, position
from kernel_assistant.generator.print.cuda.common import scope_loads
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, joined, pointers, unsigned
from kernel_assistant.records import Launch

#: Up to this many positions that a thread looks at are unrolled, and all loads issued without a branch in between.
UNROLLED = 256
#: Share of threads with an output from which a block is a piece of one row.
FULL_ENOUGH = 0.8
#: Longest window along a row that is unrolled in any case.
UNROLLED_ROW = 32
#: Most rows of the input that the outputs of a thread may span.
MOST_BAND = 64


def emit_direct(nest: LoopNest, schedule: Schedule) -> tuple[KernelSource, Launch]:
    return DirectWindow(nest, schedule).write()


class DirectWindow:
    """Writes kernels for windows (poolings, depthwise convolutions) in which every thread reads its elements directly
    from global memory."""

    #: Whether threads without an output may end at once.
    leaves = True

    def __init__(self, nest: LoopNest, schedule: Schedule) -> None:
        self.nest, self.schedule = nest, schedule
        self.plan: WindowPlan = plan_windows(nest)
        self.unit = KernelSource(nest.prefix + "window", "cuda")
        self.body = StatementWriter(self.unit, nest)
        self.rows, self.block = schedule["rows"], schedule["block"]
        self.row = row_axis(nest, self.plan) if self.rows > 1 else None
        self.rest = nest.outer[:-1] if self.row is not None else nest.outer
        self.exists: list[str] = []
        #: Neighbouring outputs of a thread, and threads for a row of outputs.
        self.strip = dict(schedule.params).get("strip", 1)
        size = nest.size(nest.inner)
        self.across = ceil_div(size, self.strip) if isinstance(size, int) else size
        across = self.across
        self.tiled = isinstance(across, int) and across >= FULL_ENOUGH * -(-across // self.block) * self.block

    def write(self) -> tuple[KernelSource, Launch]:
        unit, nest, plan = self.unit, self.nest, self.plan
        blocks = self.tiles() if self.tiled else self.flat()
        pointers(unit, nest, self.rest, "o")
        for part in plan.parts:
            self.window(part)
        self.outputs()
        unit.finish(bounds=f"__launch_bounds__({self.block}) ")
        return unit, unit.launch((blocks, "1", "1"), self.block)

    def flat(self) -> str:
        """Writes the lines that compute which output a thread computes, with the threads numbered through all outputs.
        Returns the number of blocks as C text."""
        unit, nest, bands = self.unit, self.nest, self.bands()
        size, rest = nest.size(nest.inner), nest.size(self.rest)
        unit.add(f"const int64_t N = {unit.size(size)};")
        unit.add(f"const int64_t g = (int64_t)blockIdx.x * {self.block} + threadIdx.x;")
        unit.add(f"if (g >= N * {bands} * ({unit.size(rest)})) return;")
        unit.add("const int64_t i = g % N;")
        unit.add_if_used("o", f"const int64_t o = g / N{f' / {bands}' if self.row else ''};")
        if self.row is not None:
            unit.add(f"const int first = (int)(g / N % {bands}) * {self.rows};")
        return f"cdiv(({size_text(size)}) * {bands} * ({size_text(rest)}), {self.block})"

    def tiles(self) -> str:
        """Writes the lines that compute which output a thread computes. Each block has a piece of one row of outputs,
        so that threads of a block differ only in their position in this row. Returns the number of blocks as C text.
        """
        unit, nest, bands = self.unit, self.nest, self.bands()
        size = self.across
        assert isinstance(size, int)
        count = ceil_div(size, self.block)
        unit.add(f"const int begin = (int)(blockIdx.x % {unsigned(count)}) * {self.block * self.strip};")
        self.own()
        below = f"blockIdx.x / {unsigned(count)}" if count > 1 else "blockIdx.x"
        unit.add_if_used("o", f"const int o = (int)({below}{f' / {unsigned(bands)}' if self.row else ''});")
        if self.row is not None:
            unit.add(f"const int first = (int)({below} % {unsigned(bands)}) * {self.rows};")
        if size % self.block and self.leaves:
            unit.add(f"if (i >= {size_text(nest.size(nest.inner))}) return;")
        return f"{count} * {bands} * ({size_text(nest.size(self.rest))})"

    def own(self) -> None:
        """Declares i, the first output of this thread in its row; the block begins at output `begin`."""
        self.unit.add("const int i = begin + (int)threadIdx.x;")

    def bands(self) -> int:
        if self.row is None:
            return 1
        assert isinstance(self.row.size, int)
        return -(-self.row.size // self.rows)

    def window(self, part: WindowBody) -> None:
        """Writes code that reduces this thread's windows, one for each of its outputs, into the array
        w<number>[rows]."""
        unit, number = self.unit, part.number
        unit.add(f"{part.window.ctype} w{number}[{self.rows}];")
        unit.add("#pragma unroll")
        unit.add(f"for (int t = 0; t < {self.rows}; ++t) w{number}[t] = {neutral_text(part)};")
        self.body.write(part.steady, scope_loads(unit, self.nest), "s")
        last = part.last
        if not self.tiled or last is None or always_inside(last):
            unit.open("")
            self.walk(part, tested=True)
            unit.close()
            return
        reach = (self.block - 1) * last.stride + (last.size - 1) * last.dilation
        start = position("begin", last, "")
        unit.open(f"if ({start} >= 0 && {start} + {reach} < {last.source.size})")
        self.walk(part, tested=False)
        unit.close()
        unit.open("else")
        self.walk(part, tested=True)
        unit.close()

    def walk(self, part: WindowBody, tested: bool) -> None:
        """Writes the loops over all positions of the windows; with `tested`, some positions may be outside the row."""
        unit, number = self.unit, part.number
        unrolled = part.count * self.rows <= UNROLLED
        self.exists = []
        band = next((span for span in part.spans if self.row is not None and span.out is self.row), None)
        for dim, span in enumerate(part.spans):
            if span is not band:
                self.loop(part, f"at{number}_{dim}", span, unrolled)
        if band is not None:
            self.band(f"at{number}_{part.spans.index(band)}", band, unrolled)
        if band is not None and band.tap is not None:
            self._read(part, unrolled, tested, band)
        else:
            unit.add(f"{part.window.ctype} x = {neutral_text(part)};")
            self._read(part, unrolled, tested)
            self.join(part, band)
        for _ in part.spans:
            unit.close()

    def loop(self, part: WindowBody, at: str, span: Span, unrolled: bool) -> None:
        """Begins the loop over the window's positions along a dimension in which this thread has one output."""
        unit, k = self.unit, _tap(at)
        if unrolled:
            unit.add("#pragma unroll")
        unit.open(f"for (int {k} = 0; {k} < {span.size}; ++{k})")
        out = digit(unit, self.rest, span.out, "o")
        text = position(out if out in ("0", "o") else f"(int)({out})", span, k)
        self.place(at, text, span, unrolled, not always_inside(span))

    def place(self, at: str, place: str, span: Span, unrolled: bool, tested: bool) -> None:
        """Declares the C variable `at`, a position in the input, with the value of the C text `place`. With `tested`, a
        position outside the input is skipped: by a condition on the loads in unrolled code, else by `continue`.
        """
        self.unit.add(f"const int {at} = {place};")
        if not tested:
            return
        if not unrolled:
            self.unit.add(f"if ((unsigned){at} >= {unsigned(span.source.size)}) continue;")
            return
        self.unit.add(f"const bool in_{at} = (unsigned){at} < {unsigned(span.source.size)};")
        self.exists.append(f"in_{at}")

    def band(self, at: str, span: Span, unrolled: bool) -> None:
        """Begins the loop over all input rows that the windows of this thread cover, each once; `at` is the C variable
        with the row's position. Raises Unsupported if they are more than MOST_BAND rows."""
        unit, used = self.unit, used_rows(span, self.rows)
        if used.bit_length() > MOST_BAND:
            raise Unsupported(f"{self.rows} rows of outputs look at {used.bit_length()} rows of the input")
        if unrolled:
            unit.add("#pragma unroll")
        unit.open(f"for (int b = 0; b < {used.bit_length()}; ++b)")
        if used.bit_count() < used.bit_length():
            unit.add(f"if (!({used:#x}ull >> b & 1)) continue;")
        self.place(at, f"{position('first', span, '')} + b", span, unrolled, tested=True)

    def _read(self, part: WindowBody, unrolled: bool, tested: bool, weighted: Span | None = None) -> None:
        """Writes code that reduces the window along the inner loop into the C variable x. With `weighted`, each
        position is added directly to the outputs instead, because its weight differs between the rows of outputs.
        """
        unit, last, exists = self.unit, part.last, list(self.exists)
        if last is not None:
            if unrolled or last.size <= UNROLLED_ROW:
                unit.add("#pragma unroll")
            unit.open(f"for (int k = 0; k < {last.size}; ++k)")
            unit.add(f"const int p = {position('(int)i', last, 'k')};")
            if tested and not always_inside(last):
                exists.append(f"(unsigned)p < {unsigned(last.source.size)}")
        if exists:
            unit.add(f"const bool in = {' && '.join(exists)};")
        inside = "in" if exists else ""
        inner = self.body.inner()
        if weighted is not None:
            self._weigh(part, weighted, inner, inside)
        else:
            inner.write(part.body, self.guarded(part, inside))
            unit.add(f"x = {JOIN[part.window.kind].format('x', _known(part, inner, inside))};")
        if last is not None:
            unit.close()

    def _weigh(self, part: WindowBody, band: Span, body: StatementWriter, inside: str) -> None:
        """Writes the code that reads the element at the current position once and adds it, times a weight for each
        output, to the outputs of this thread. The windows move along `band` from one row of outputs to the next.
        """
        unit = self.unit
        later = varying(part.body, self.nest, {band.tap})
        body.write([expr for expr in part.body if id(expr) not in later], self.guarded(part, inside))
        self._outputs_at(band)
        unit.add(f"const int row_tap = above / {band.dilation};")
        own = body.inner()
        own.write(part.body, self.guarded(part, "", [([band.tap], "row_tap")] if band.tap else []))
        to = f"w{part.number}[t]"
        unit.add(f"{to} = {JOIN[part.window.kind].format(to, _known(part, own, inside))};")
        unit.close()

    def _outputs_at(self, band: Span) -> None:
        """Begins the loop over the outputs of this thread whose windows contain the current input row."""
        unit = self.unit
        unit.add("#pragma unroll")
        unit.open(f"for (int t = 0; t < {self.rows}; ++t)")
        reach = (band.size - 1) * band.dilation
        unit.add(f"const int above = b - t * {band.stride};")
        unit.add(f"if (above < 0 || above > {reach} || above % {band.dilation} != 0) continue;")

    def guarded(self, part: WindowBody, inside: str, more: Sequence[tuple[list[Axis], str]] = ()) -> dict[int, str]:
        """Returns the C text of every load, by the `id` of its access; a load reads nothing where the condition
        `inside` is false."""
        texts = {}
        for access in dict.fromkeys(self.nest.loads.values()):
            index = joined(*(self.unit.position(access, *loop) for loop in (*self.loops(part), *more)))
            texts[id(access)] = self.unit.fetch(access, index, inside, always=True)
        return texts

    def loops(self, part: WindowBody) -> list[tuple[list[Axis], str]]:
        """Returns the loops of the window's argument, as pairs of axes and the variable that counts along them."""
        loops = [([span.source], f"at{part.number}_{dim}") for dim, span in enumerate(part.spans)]
        loops += [
            ([span.tap], _tap(f"at{part.number}_{dim}"))
            for dim, span in enumerate(part.spans)
            if span.tap is not None and span.out is not self.row
        ]
        loops += [([part.last.tap], "k")] if part.last is not None and part.last.tap is not None else []
        return [*loops, (self.nest.inner, "i") if part.last is None else ([part.last.source], "p")]

    def join(self, part: WindowBody, band: Span | None) -> None:
        """Writes code that adds x (or takes the maximum with x) to every output of this thread whose window contains
        it."""
        unit = self.unit
        to = f"w{part.number}[t]"
        step = f"{to} = {JOIN[part.window.kind].format(to, 'x')};"
        unit.add("#pragma unroll")
        if band is None:
            unit.add(f"for (int t = 0; t < {self.rows}; ++t) {step}")
            return
        unit.open(f"for (int t = 0; t < {self.rows}; ++t)")
        reach = (band.size - 1) * band.dilation
        unit.add(f"const int above = b - t * {band.stride};")
        unit.add(f"if (above >= 0 && above <= {reach} && above % {band.dilation} == 0) {step}")
        unit.close()

    def outputs(self) -> None:
        """Writes the computation of each output of this thread from its windows, and its store."""
        unit, nest, plan = self.unit, self.nest, self.plan
        loops = [(nest.inner, "i")]
        if self.row is not None:
            unit.add("#pragma unroll")
            unit.open(f"for (int t = 0; t < {self.rows}; ++t)")
            unit.add("const int row = first + t;")
            unit.add(f"if (row >= {self.row.size}) continue;")
            loops = [([self.row], "row"), *loops]
        body = self.body.inner()
        body.names.update((id(part.window), f"w{part.number}[{'t' if self.row else 0}]") for part in plan.parts)
        body.write([*plan.steady, *plan.body], scope_loads(unit, nest, *loops))
        for access, output in plan.stores:
            index = joined(*(unit.position(access, *loop) for loop in loops))
            unit.add(f"ka_put({access.name}[{index}], {body.name(output.expr)});")
        if self.row is not None:
            unit.close()


def _tap(at: str) -> str:
    """Returns the name of the C variable that counts the window's positions along one of its dimensions; `at` is the
    variable with the position in the input along this dimension.
    """
    return f"k{at[2:]}"


def _known(part: WindowBody, body: StatementWriter, inside: str) -> str:
    """Returns C text of the window's argument, or of the neutral value where the condition `inside` is false."""
    value = body.name(part.window.arg)
    return f"({inside} ? {value} : {neutral_text(part)})" if inside else value


def unweighted(plan: WindowPlan, form: str) -> None:
    """Raises Unsupported if a window has weights; the form `form` cannot share loads of weighted elements between
    outputs."""
    spans = [span for part in plan.parts for span in (*part.spans, *([part.last] if part.last else []))]
    if any(span.tap is not None for span in spans):
        raise Unsupported(f"weights in {form}")


def used_rows(span: Span, rows: int) -> int:
    """Returns a bit mask of the input rows, counted from the first one, that the windows of `rows` neighbouring outputs
    cover."""
    mask = 0
    for t in range(rows):
        for k in range(span.size):
            mask |= 1 << (t * span.stride + k * span.dilation)
    return mask


def row_axis(nest: LoopNest, plan: WindowPlan) -> Axis:
    """Returns the axis directly outside the inner one. Raises Unsupported unless all windows move along it and its size
    is known.
    """
    row = nest.outer[-1] if nest.outer else None
    if row is None or not isinstance(row.size, int):
        raise Unsupported("no rows of outputs to share")
    if not all(any(span.out is row for span in part.spans) for part in plan.parts):
        raise Unsupported("rows of outputs that share no input")
    return row
