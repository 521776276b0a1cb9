"""Sizes and numbers that have a name beside their value.

Code that decides something (whether a row fits into registers, whether a size is a multiple of four) uses the value;
code that prints writes the name. So the generator's text is the same for all sizes that lead to the same decisions.
Products, sums and quotients of such sizes keep their text; all other operations give plain integers.

    >>> size = NamedSize.of_name("D0", 768)
    >>> size % 4 == 0, f"{size * 2 + 1}", size // 4 * 4 == 768
    (True, '(D0*2 + 1)', True)

`repr` also writes the values, in the form in which a graph's text and shapes have them, without blanks: `D0(768)*2`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Self

#: Names have the type of the number that they stand for, as a literal has it: int, from here on int64_t.
WIDE = 1 << 31
#: Marks a quotient that was rounded down, in `repr`.
ROUNDED = "rounded"
#: A name and its value, as `repr` writes them.
NAMED_SIZE = re.compile(r"\b(D\d+)\((\d+)\)")
_NAMED_NUMBER = re.compile(r"(C\d+)\((.*)\)$")


@dataclass(frozen=True, slots=True)
class _Atom:
    """A factor of a size: a name, or a sum or quotient in parentheses. `text` is its C text; in `full`, each name is
    followed by its value, as in `D0(768)`.
    """

    text: str
    full: str
    value: int


#: Numerator and denominator, without a common factor.
_Scale = tuple[int, int]
_ONE: _Scale = (1, 1)


class NamedSize(int):
    """An integer that knows how it is computed from named sizes: `scale` (numerator, denominator) times the atoms
    (factors) of `top`, divided by the atoms of `bottom`. `str` writes it with the names, `repr` with names and values.
    """

    scale: _Scale
    top: tuple[_Atom, ...]
    bottom: tuple[_Atom, ...]

    def __new__(cls, value: int, scale: _Scale, top: tuple[_Atom, ...] = (), bottom: tuple[_Atom, ...] = ()) -> Self:
        made = super().__new__(cls, value)
        made.scale, made.top, made.bottom = scale, top, bottom
        return made

    @classmethod
    def of_name(cls, name: str, value: int) -> Self:
        return cls(value, _ONE, (_Atom(name, f"{name}({value})", value),))

    def __str__(self) -> str:
        above, below = self._products([atom.text for atom in self.top], [atom.text for atom in self.bottom])
        divisor = self.scale[1] * math.prod([atom.value for atom in self.bottom])
        wide = abs(int(self)) * divisor >= WIDE
        cast = "(int64_t)" if wide and not (self.top and self.top[0].value >= WIDE) else ""
        if below == "1":
            return cast + above
        below = f"((int64_t){below})" if divisor >= WIDE else f"({below})" if "*" in below else below
        quotient = f"({cast}{above} / {below})"
        return f"(int){quotient}" if wide and abs(int(self)) < WIDE else quotient

    def __repr__(self) -> str:
        above, below = self._products([atom.full for atom in self.top], [atom.full for atom in self.bottom])
        return above if below == "1" else f"({above}//({below}))"

    def _products(self, top: list[str], bottom: list[str]) -> tuple[str, str]:
        return _product_text(top, self.scale[0]), _product_text(bottom, self.scale[1])

    def __format__(self, form: str) -> str:
        return format(int(self), form) if form else str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedSize, (int(self), self.scale, self.top, self.bottom)

    def __mul__(self, other: int) -> int:
        return _product(self, other) if _is_size(other) else NotImplemented

    def __rmul__(self, other: int) -> int:
        return _product(other, self) if _is_size(other) else NotImplemented

    def __add__(self, other: int) -> int:
        return _sum(self, other) if _is_size(other) else NotImplemented

    def __radd__(self, other: int) -> int:
        return _sum(other, self) if _is_size(other) else NotImplemented

    def __sub__(self, other: int) -> int:
        return _difference(self, other) if _is_size(other) else NotImplemented

    def __rsub__(self, other: int) -> int:
        return _difference(other, self) if _is_size(other) else NotImplemented

    def __floordiv__(self, other: int) -> int:
        return _quotient(self, other) if _is_size(other) else NotImplemented

    def __rfloordiv__(self, other: int) -> int:
        return _quotient(other, self) if _is_size(other) else NotImplemented


class NamedNumber(float):
    """A float with a name in `text`, such as an epsilon with the name C0. `str` is the name, `repr` name and value."""

    text: str

    def __new__(cls, value: float, text: str) -> Self:
        made = super().__new__(cls, value)
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{self.text}({float(self)!r})"

    def __format__(self, form: str) -> str:
        return format(float(self), form) if form else self.text

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedNumber, (float(self), self.text)


def read_named_size(word: str) -> NamedSize | None:
    """Returns the NamedSize whose `repr` is `word`, such as `D0(768)`; None for any other text."""
    match = NAMED_SIZE.fullmatch(word)
    return NamedSize.of_name(match[1], int(match[2])) if match else None


def read_named_number(word: str) -> NamedNumber | None:
    """Returns the NamedNumber whose `repr` is `word`, such as `C0(1e-05)`; None for any other text."""
    match = _NAMED_NUMBER.match(word)
    return NamedNumber(float(match[2]), match[1]) if match else None


def ceil_div(size: int, step: int) -> int:
    """Returns `size` / `step`, rounded up; both are positive. For named sizes, the text is the same whether or not the
    division is exact.
    """
    return rounded((size + (step - 1)) // step) if isinstance(size, NamedSize) else -(-size // step)


def _is_size(other: object) -> bool:
    return isinstance(other, int) and not isinstance(other, bool)


def _product_text(factors: list[str], scale: int) -> str:
    return "*".join([*factors, *([str(scale)] if scale != 1 or not factors else [])])


def _parts(size: int) -> tuple[_Scale, tuple[_Atom, ...], tuple[_Atom, ...]]:
    return (size.scale, size.top, size.bottom) if isinstance(size, NamedSize) else ((int(size), 1), (), ())


def _times(a: _Scale, b: _Scale) -> _Scale:
    above, below = a[0] * b[0], a[1] * b[1]
    if below == 1:
        return above, 1
    common = math.gcd(above, below)
    return above // common, below // common


def _monomial(value: int, scale: _Scale, top: tuple[_Atom, ...], bottom: tuple[_Atom, ...]) -> int:
    """Returns the size scale · top / bottom after common atoms are cancelled; a plain integer if no atom is left."""
    if not bottom:
        return NamedSize(value, scale, top) if top else value
    above, below = list(top), list[_Atom]()
    for atom in bottom:
        if atom in above:
            above.remove(atom)
        else:
            below.append(atom)
    return NamedSize(value, scale, tuple(above), tuple(below)) if above or below else value


def _product(a: int, b: int) -> int:
    x, y = int(a), int(b)
    if x == 0 or y == 0:
        return 0
    (scale, top, bottom), (more, above, below) = _parts(a), _parts(b)
    if y == 1 and not above and not below:
        return a
    return _monomial(x * y, _times(scale, more), top + above, bottom + below)


def _quotient(a: int, b: int) -> int:
    x, y = int(a), int(b)
    if x < y or y <= 0:
        return x // y
    (scale, top, bottom), (less, above, below) = _parts(a), _parts(b)
    quotient = _monomial(x // y, _times(scale, (less[1], less[0])), top + below, bottom + above)
    return quotient if x % y == 0 else rounded(quotient)


def rounded(quotient: int) -> int:
    """Makes a quotient that was rounded down a single factor, so that later products and quotients do not cancel parts
    of it. Returns a plain integer unchanged.
    """
    if not isinstance(quotient, NamedSize):
        return quotient
    return NamedSize(quotient, _ONE, (_Atom(str(quotient), f"{ROUNDED}({quotient!r})", int(quotient)),))


def _sum(a: int, b: int) -> int:
    x, y = int(a), int(b)
    if 0 in (x, y):
        return b if x == 0 else a
    if x < 0 or y < 0:
        return _difference(a, -1 * b) if x > 0 else _difference(b, -1 * a)
    cast = "(int64_t)" if x + y >= WIDE > max(x, y) else ""
    return NamedSize(x + y, _ONE, (_Atom(f"({cast}{a} + {b})", f"({a!r}+{b!r})", x + y),))


def _difference(a: int, b: int) -> int:
    x, y = int(a), int(b)
    if x == y or y == 0 or x <= 0:
        return a if y == 0 else x - y
    if y < 0:
        return _sum(a, -1 * b)
    return NamedSize(x - y, _ONE, (_Atom(f"({a} - {b})", f"({a!r}-{b!r})", x - y),))
