"""Sizes as text: D0, B*D1. A number that no symbol has becomes a product of symbols."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import combinations_with_replacement
from math import prod

from kernel_assistant.generator.ir.sizes import Poly, Size, size_value
from kernel_assistant.records.canonical import Canonical

#: Most factors of a product of symbols.
MOST_FACTORS = 4
#: Numbers up to this one are mostly kernel sizes or groups, and are written as numbers.
SMALL = 16


class NoForm(Exception):
    """This form cannot write the task."""


class Sizes:
    """Writes sizes in code (`a.B`, `D0 * D1`) and in launch lines (`B*D0*D1`). `free` collects the dimensions that the
    code uses, which have to be arguments of the kernel. `numbers` is the task whose numbers the lowering used as sizes,
    None if it used symbols; these numbers may differ from those of `task`."""

    def __init__(self, task: Canonical, target: str, numbers: Canonical | None) -> None:
        self._values = {**task.graph.dims, **task.sizes}
        self._symbols = {size: name for name, size in (numbers or task).sizes.items()}
        self._free = task.graph.dims
        self.numbers = numbers
        self._coded = numbers is not None and numbers.sizes != task.sizes
        self._arguments = "a." if target == "cuda" else "a->"
        self.free: dict[str, None] = {}
        self._aliases: dict[Size, str] = {}

    def value(self, size: Size) -> int:
        """The size as a number, at the base sizes."""
        if not self._coded:
            return size_value(size, self._values)
        terms = size.terms if isinstance(size, Poly) else (((), size),)
        return sum(self._decoded(number) * prod(self._values[name] for name in names) for names, number in terms)

    def _decoded(self, number: int) -> int:
        """The task's own number for a number of `numbers`."""
        if number <= SMALL:
            return number
        names, divisor = self._made_of(number)
        return prod(self._values[name] for name in names) // divisor

    def alias(self, size: Size, name: str) -> str:
        """Gives the size the name `name` in code from now on, unless its text is a name already. Returns the line that
        defines it, or ""."""
        self._aliases.pop(size, None)
        text = self.code(size)
        if text.isalnum():
            return ""
        self._aliases[size] = name
        text = text[1:-1] if text.startswith("(") and text.endswith(")") else text
        return f"{'const' if '.' in text or '>' in text else 'constexpr'} int64_t {name} = {text};"

    def code(self, size: Size) -> str:
        """The size as C++. Sums and quotients are in parentheses, products are not."""
        if size in self._aliases:
            return self._aliases[size]
        return self._text(size, " * ", " / ", self._argument)

    def launch(self, size: Size) -> str:
        return self._text(size, "*", "//", lambda name: name)

    def factor(self, size: Size) -> str:
        """The size as C++ with parentheses where it could not be divided by otherwise."""
        text = self.code(size)
        return f"({text})" if " " in text and not text.startswith("(") else text

    def _argument(self, name: str) -> str:
        if name in self._free:
            self.free[name] = None
            return self._arguments + name
        return name

    def _text(self, size: Size, times: str, over: str, named: Callable[[str], str]) -> str:
        if isinstance(size, int):
            return self._number(size, times, over)
        parts = []
        for symbols, coefficient in size.terms:
            if not all(name in self._values for name in symbols):
                raise NoForm(f"size {size!r}")
            factors = [named(name) for name in symbols]
            factors += [self._number(coefficient, times, over)] if coefficient != 1 or not factors else []
            parts.append(times.join(factors))
        return parts[0] if len(parts) == 1 else "(" + " + ".join(parts) + ")"

    def _number(self, number: int, times: str, over: str) -> str:
        """The number as symbols, if the lowering used numbers as sizes; else as it is."""
        if number < 0 or self.numbers is None or (number <= SMALL and number not in self._symbols):
            return str(number)
        names, divisor = self._made_of(number)
        return (
            times.join(names) if divisor == 1 else f"({times.join(names)}{over}{self._symbols.get(divisor, divisor)})"
        )

    def _made_of(self, number: int) -> tuple[tuple[str, ...], int]:
        """Symbols, and the number by which their product is divided. Raises NoForm."""
        for divisor in (1, *range(2, SMALL + 1), *self._symbols):
            found = self._product(number * divisor)
            if found is not None:
                return found, divisor
        raise NoForm(f"no symbols make {number}")

    def _product(self, number: int) -> tuple[str, ...] | None:
        return self._products.get(number)

    @cached_property
    def _products(self) -> dict[int, tuple[str, ...]]:
        """For each number the fewest symbols whose product it is."""
        found: dict[int, tuple[str, ...]] = {}
        for count in range(1, MOST_FACTORS + 1):
            for sizes in combinations_with_replacement(self._symbols, count):
                found.setdefault(prod(sizes), tuple(self._symbols[size] for size in sizes))
        return found
