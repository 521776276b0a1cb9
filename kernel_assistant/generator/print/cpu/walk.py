"""Describes how a pass loops over the reduced dimensions R, which need not be contiguous in memory."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.expr import Axis
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.print.render import KernelSource

#: Dimensions that lie apart are walked through one by one where the last of them is at least a vector long.
LONG = 16


@dataclass(frozen=True)
class Walk:
    """How a pass loops over the reduced dimensions R. The outer loop has the variable p, which counts through the axes
    `outer`; in it, the inner loop has the variable q, which counts through the L elements of the axes `inner`. If
    `outer` is empty, there is only the loop over q.

    With `some`, it covers only the positions of R from `begin` to `end`, two variables of the surrounding C code.
    """

    outer: list[Axis]
    inner: list[Axis]
    some: bool = False

    @property
    def limits(self) -> tuple[str, str]:
        """Returns C texts of the first value of the loop variable q, and of the end that q must stay below."""
        if self.outer:
            return ("from", "to") if self.some else ("0", "L")
        return ("begin", "end") if self.some else ("0", "R")

    @property
    def loops(self) -> list[tuple[list[Axis], str]]:
        return [(self.outer, "p"), (self.inner, "q")] if self.outer else [(self.inner, "q")]

    def pieces(self, chunk: int) -> int:
        """Returns the number of positions p with L elements each that fit into `chunk` elements; 0 if L is not known or
        fewer than two fit.
        """
        size = self.inner[-1].size
        return chunk // size if self.outer and isinstance(size, int) and 2 * size <= chunk else 0

    def kept(self, name: str) -> str:
        """Returns C text of the element of a row buffer at the current position."""
        return f"{name}[p * L + q]" if self.outer else f"{name}[q]"

    def declare(self, unit: KernelSource, nest: LoopNest) -> None:
        if self.outer:
            unit.add(f"const int64_t L = {unit.size(nest.size(self.inner))};")

    def open_batch(self, unit: KernelSource, nest: LoopNest, pieces: int) -> None:
        """Begins a loop over b = 0, `pieces`, 2·`pieces`, …, the first p of each batch of `pieces` positions."""
        first = "begin / L" if self.some else "0"
        unit.open(f"for (int64_t b = {first}; {self._inside(unit, nest, 'b')}; b += {pieces})")

    def open(self, unit: KernelSource, nest: LoopNest, pieces: int = 0) -> None:
        """Begins the loop over p, which counts the positions along the axes `outer`; does nothing if there are no such
        axes. The loop covers the batch of `pieces` positions that begins at b; with `pieces` 0, it covers all positions
        or, with `some`, those of the range."""
        if not self.outer:
            return
        first = "b" if pieces else "begin / L" if self.some else "0"
        batch = f"p < b + {pieces} && " if pieces else ""
        unit.open(f"for (int64_t p = {first}; {batch}{self._inside(unit, nest, 'p')}; ++p)")
        if self.some:
            unit.add("const int64_t from = ka_max(begin - p * L, (int64_t)0), to = ka_min(end - p * L, L);")

    def close(self, unit: KernelSource) -> None:
        if self.outer:
            unit.close()

    def _inside(self, unit: KernelSource, nest: LoopNest, var: str) -> str:
        return f"{var} * L < end" if self.some else f"{var} < {unit.size(nest.size(self.outer))}"


def walk_of(nest: LoopNest, some: bool = False) -> Walk:
    """Returns the loops over the reduced dimensions of a nest. The last dimension gets an inner loop of its own if it
    is long, so that no position is computed by a division. With `some`, they cover a range of positions.
    """
    last = nest.reduced[-1].size
    if len(nest.reduced) > 1 and (not isinstance(last, int) or last >= LONG):
        return Walk(nest.reduced[:-1], nest.reduced[-1:], some)
    return Walk([], nest.reduced, some)
