"""Writes windows (poolings, depthwise convolutions) for the CPU: each iteration of the parallel loop computes a tile, a
piece of a row of outputs. Outputs whose windows are completely inside the row are computed without bounds checks.

If the schedule's parameter `stage` is 1, the elements of an input row that the windows of a tile cover are first copied
to a buffer. Elementwise work on the input is then done once for each copied element, not again in each window that
contains the element.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Axis, Span
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import product
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.windows_plan import WindowBody, plan_windows
from kernel_assistant.generator.lower.moving import JOIN
from kernel_assistant.generator.lower.spans import always_inside
from kernel_assistant.generator.print.cpu.common import loads, parallel, stores
from kernel_assistant.generator.print.cpu.rows import STACK
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, literal, pointers

#: Longest window along a row whose positions are written out.
WRITTEN_OUT = 16


def neutral_text(part: WindowBody) -> str:
    kind, ctype = part.window.kind, part.window.ctype
    if kind == "sum" or ctype == "bool":
        return literal(0, ctype)
    return "INT64_MIN" if ctype == "int64_t" else literal(float("-inf"), ctype)


def digit(unit: KernelSource, axes: list[Axis], axis: Axis, var: str) -> str:
    """Returns C text of the position along `axis`, if the variable `var` counts through all of `axes`; "0" if `axis` is
    not among them."""
    if axis not in axes:
        return "0"
    index = axes.index(axis)
    below = product([inner.size for inner in axes[index + 1 :]])
    text = var if below == 1 else f"{var} / {unit.divisor(below)}"
    return f"{text} % {unit.divisor(axis.size)}" if index else text


def position(out: str, span: Span, k: str) -> str:
    """Returns C text of the position stride·out + dilation·k - padding in the input. `out` and `k` are C texts: the
    index of the output, and the index in its window ("" for 0)."""
    terms = [out if span.stride == 1 else f"{out} * {span.stride}"] if out != "0" else []
    terms += [k if span.dilation == 1 else f"{k} * {span.dilation}"] if k not in ("", "0") else []
    text = " + ".join(terms) or "0"
    return f"{text} - {span.padding}" if span.padding else text


def emit_window(nest: LoopNest, schedule: Schedule) -> KernelSource:
    unit, plan = KernelSource(nest.prefix + "window", "cpu"), plan_windows(nest)
    size = nest.size(nest.inner)
    tile = min(schedule["tile"], size) if isinstance(size, int) else schedule["tile"]
    unit.add(f"const int64_t N = {unit.size(size)}, O = {unit.size(nest.size(nest.outer))};")
    unit.add(f"const int64_t tiles = (N + {tile - 1}) / {unit.divisor(tile)};")
    parallel(unit, f"O * N * {max(part.count for part in plan.parts)}")
    unit.open("for (int64_t task = 0; task < O * tiles; ++task)")
    unit.add_if_used("o", "const int64_t o = task / tiles;")
    unit.add(f"const int64_t begin = task % tiles * {tile};")
    unit.add(f"const int64_t end = ka_min(N, begin + {tile});")
    pointers(unit, nest, nest.outer, "o")
    body = StatementWriter(unit, nest)
    for part in plan.parts:
        _window(body, part, tile, bool(schedule["stage"]))
        body.names[id(part.window)] = f"w{part.number}[i - begin]"
    body.write(plan.steady, loads(unit, nest), "s")
    unit.add("#pragma omp simd")
    unit.open("for (int64_t i = begin; i < end; ++i)")
    inner = body.inner()
    inner.write(plan.body, loads(unit, nest, (nest.inner, "i")))
    stores(inner, plan.stores, (nest.inner, "i"))
    unit.close()
    unit.close()
    return unit


def _window(body: StatementWriter, part: WindowBody, tile: int, stage: bool) -> None:
    """Writes a loop that computes window `part` for the outputs `begin` to `end` of a tile (C variables) into the array
    w<number>. With `stage`, the input row is first copied to an array of its own."""
    unit, nest, number = body.unit, body.nest, part.number
    ctype, last = part.window.ctype, part.last
    unit.add(f"alignas(64) {ctype} w{number}[{tile}];")
    unit.add(f"for (int64_t i = begin; i < end; ++i) w{number}[i - begin] = {neutral_text(part)};")
    body.write(part.steady, loads(unit, nest), "s")
    for dim, span in enumerate(part.spans):
        at, k = f"at{number}_{dim}", f"k{number}_{dim}"
        unit.open(f"for (int64_t {k} = 0; {k} < {span.size}; ++{k})")
        out = digit(unit, nest.outer, span.out, "o")
        unit.add(f"const int64_t {at} = {position(f'({out})' if ' ' in out else out, span, k)};")
        if not always_inside(span):
            unit.add(f"if ((uint64_t){at} >= {span.source.size}) continue;")
    variable = "i" if last is None else "p" if last.tap is None else "p, int64_t k"
    unit.open(f"const auto read{number} = [&](int64_t {variable}) __attribute__((always_inline))")
    inner = body.inner()
    loops = [([span.source], f"at{number}_{dim}") for dim, span in enumerate(part.spans)]
    loops += [([span.tap], f"k{number}_{dim}") for dim, span in enumerate(part.spans) if span.tap is not None]
    loops += [([last.tap], "k")] if last is not None and last.tap is not None else []
    own = (nest.inner, "i") if last is None else ([last.source], "p")
    inner.write(part.body, loads(unit, nest, *loops, own))
    unit.add(f"return {inner.name(part.window.arg)};")
    unit.close(";")
    if last is None:
        _columns(unit, part, [f"read{number}(i)"], "begin", "end")
    elif stage:
        _staged(unit, part, last, tile)
    else:
        _along(unit, part, last)
    for _ in part.spans:
        unit.close()


def _columns(unit: KernelSource, part: WindowBody, values: list[str], begin: str, end: str) -> None:
    """Writes the loop over the outputs i in [begin, end) that reduces `values` into the element of output i of the
    array w<number>, where <number> is that of the window `part`. `values` are C texts, over i, of elements of i's
    window that are inside the input."""
    number = part.number
    unit.add("#pragma omp simd")
    unit.open(f"for (int64_t i = {begin}; i < {end}; ++i)")
    unit.add(f"{part.window.ctype} x = w{number}[i - begin];")
    for value in values:
        unit.add(f"x = {JOIN[part.window.kind].format('x', value)};")
    unit.add(f"w{number}[i - begin] = x;")
    unit.close()


def _along(unit: KernelSource, part: WindowBody, span: Span) -> None:
    """Writes the inner loop in three parts: outputs whose windows begin before the row, whose windows are inside the
    row, and whose windows end after it.
    """
    size = span.source.size
    assert isinstance(size, int)
    first = -(-span.padding // span.stride)
    stop = (size - 1 + span.padding - (span.size - 1) * span.dilation) // span.stride + 1
    unit.add(f"const int64_t low = ka_min(end, ka_max(begin, (int64_t){first}));")
    unit.add(f"const int64_t high = ka_max(low, ka_min(end, (int64_t){stop}));")
    if not always_inside(span):
        _edge(unit, part, span, "begin", "low")
    if span.size <= WRITTEN_OUT:
        positions = [(_shifted(span, k * span.dilation - span.padding), k) for k in range(span.size)]
        _columns(unit, part, [_reading(part, span, at, str(k)) for at, k in positions], "low", "high")
    else:
        unit.open(f"for (int64_t k = 0; k < {span.size}; ++k)")
        _columns(unit, part, [_reading(part, span, position("i", span, "k"), "k")], "low", "high")
        unit.close()
    if not always_inside(span):
        _edge(unit, part, span, "high", "end")


def _staged(unit: KernelSource, part: WindowBody, span: Span, tile: int) -> None:
    """Writes a copy of the input row that is padded with the neutral value, and the inner loop that reads this copy.
    Raises Unsupported if the window has weights along the row, or if the copy is too long for the stack."""
    if span.tap is not None:
        raise Unsupported("a copied row of products, which are others for each output")
    row, number, ctype = f"row{part.number}", part.number, part.window.ctype
    length = (tile - 1) * span.stride + (span.size - 1) * span.dilation + 1
    if length * 8 > STACK:
        raise Unsupported("a row too long for the stack")
    unit.add(f"alignas(64) {ctype} {row}[{length}];")
    unit.add(f"const int64_t from = {position('begin', span, '')};")
    unit.add(f"const int64_t all = (end - 1 - begin) * {span.stride} + {(span.size - 1) * span.dilation + 1};")
    unit.add("const int64_t low = ka_min(all, ka_max((int64_t)0, -from));")
    unit.add(f"const int64_t high = ka_max(low, ka_min(all, {span.source.size} - from));")
    unit.add(f"for (int64_t j = 0; j < low; ++j) {row}[j] = {neutral_text(part)};")
    unit.add("#pragma omp simd")
    unit.add(f"for (int64_t j = low; j < high; ++j) {row}[j] = read{number}(from + j);")
    unit.add(f"for (int64_t j = high; j < all; ++j) {row}[j] = {neutral_text(part)};")
    at = "(i - begin)" if span.stride == 1 else f"(i - begin) * {span.stride}"
    if span.size <= WRITTEN_OUT:
        _columns(unit, part, [f"{row}[{at} + {k * span.dilation}]" for k in range(span.size)], "begin", "end")
        return
    unit.open(f"for (int64_t k = 0; k < {span.size}; ++k)")
    _columns(unit, part, [f"{row}[{at} + k * {span.dilation}]"], "begin", "end")
    unit.close()


def _reading(part: WindowBody, span: Span, at: str, k: str) -> str:
    """Returns C text of the window's argument at position `at` along the inner loop; `k` is the index of the weight."""
    return f"read{part.number}({at}{f', {k}' if span.tap is not None else ''})"


def _shifted(span: Span, by: int) -> str:
    text = "i" if span.stride == 1 else f"i * {span.stride}"
    return text if by == 0 else f"{text} {'+' if by > 0 else '-'} {abs(by)}"


def _edge(unit: KernelSource, part: WindowBody, span: Span, begin: str, end: str) -> None:
    unit.open(f"for (int64_t i = {begin}; i < {end}; ++i)")
    unit.open(f"for (int64_t k = 0; k < {span.size}; ++k)")
    unit.add(f"const int64_t p = {position('i', span, 'k')};")
    to = f"w{part.number}[i - begin]"
    value = _reading(part, span, "p", "k")
    unit.add(f"if ((uint64_t)p < {span.source.size}) {to} = {JOIN[part.window.kind].format(to, value)};")
    unit.close()
    unit.close()
