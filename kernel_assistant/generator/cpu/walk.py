"""How a pass goes along R, whose dimensions may lie apart in memory."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.expr import Axis
from kernel_assistant.generator.nest import Nest
from kernel_assistant.generator.render import Unit

#: Dimensions that lie apart are walked through one by one where the last of them is at least a vector long.
LONG = 16


@dataclass(frozen=True)
class Walk:
    """Through the positions p of `outer`, for each through the L positions q of `inner`; with `outer` empty, through q.

    `some`: only the positions of R from `begin` to `end`, which the code around has named so.
    """

    outer: list[Axis]
    inner: list[Axis]
    some: bool = False

    @property
    def limits(self) -> tuple[str, str]:
        """First and last position q, the latter excluded."""
        if self.outer:
            return ("from", "to") if self.some else ("0", "L")
        return ("begin", "end") if self.some else ("0", "R")

    @property
    def loops(self) -> list[tuple[list[Axis], str]]:
        return [(self.outer, "p"), (self.inner, "q")] if self.outer else [(self.inner, "q")]

    def pieces(self, chunk: int) -> int:
        """How many of the L positions fit into `chunk`; 0 where that is not known, or it is only one."""
        size = self.inner[-1].size
        return chunk // size if self.outer and isinstance(size, int) and 2 * size <= chunk else 0

    def kept(self, name: str) -> str:
        """The element of a row buffer at the current position."""
        return f"{name}[p * L + q]" if self.outer else f"{name}[q]"

    def declare(self, unit: Unit, nest: Nest) -> None:
        if self.outer:
            unit.add(f"const int64_t L = {unit.size(nest.size(self.inner))};")

    def open_batch(self, unit: Unit, nest: Nest, pieces: int) -> None:
        """A loop over b, the first of `pieces` positions p."""
        first = "begin / L" if self.some else "0"
        unit.open(f"for (int64_t b = {first}; {self._inside(unit, nest, 'b')}; b += {pieces})")

    def open(self, unit: Unit, nest: Nest, pieces: int = 0) -> None:
        """The loop over p: all of it, or `pieces` from b on."""
        if not self.outer:
            return
        first = "b" if pieces else "begin / L" if self.some else "0"
        batch = f"p < b + {pieces} && " if pieces else ""
        unit.open(f"for (int64_t p = {first}; {batch}{self._inside(unit, nest, 'p')}; ++p)")
        if self.some:
            unit.add("const int64_t from = ka_max(begin - p * L, (int64_t)0), to = ka_min(end - p * L, L);")

    def close(self, unit: Unit) -> None:
        if self.outer:
            unit.close()

    def _inside(self, unit: Unit, nest: Nest, var: str) -> str:
        return f"{var} * L < end" if self.some else f"{var} < {unit.size(nest.size(self.outer))}"


def walk_of(nest: Nest, some: bool = False) -> Walk:
    """Apart where the last dimension is long: then no position is computed by a division."""
    last = nest.reduced[-1].size
    if len(nest.reduced) > 1 and (not isinstance(last, int) or last >= LONG):
        return Walk(nest.reduced[:-1], nest.reduced[-1:], some)
    return Walk([], nest.reduced, some)
