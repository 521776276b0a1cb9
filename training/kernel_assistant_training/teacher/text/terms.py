"""Terms: values as C expressions, with the positions at which their operands are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant_training.teacher.text.expressions import (
    ATOM,
    CHOICE,
    PRODUCT,
    SUM,
    free_name,
    is_node,
    template_shape,
)

#: Most names, numbers and operators of an expression.
LONGEST = 160


@dataclass(frozen=True, slots=True)
class IndexTerm:
    """A position along a dimension as C text, its precedence, and the loop variables in it."""

    text: str
    level: int = ATOM
    uses: frozenset[str] = frozenset()


ZERO = IndexTerm("0")


@dataclass(frozen=True, eq=False, slots=True)
class Load:
    """An element of a buffer: a position for each dimension, with the dimensions' sizes as text, outermost first."""

    buffer: str
    dtype: str
    ctype: str
    at: tuple[IndexTerm, ...]
    sizes: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Apply:
    """An operation as C text with {0}, {1}, … for the arguments. `guarded` says that the first argument is a condition
    and that each other argument may be computed only where the condition selects it. `node` names the node of the graph
    whose value this is, "" for an intermediate value inside a node.
    """

    ctype: str
    text: str
    args: tuple[Term, ...]
    guarded: bool = False
    node: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Name:
    """A number or a variable."""

    ctype: str
    text: str
    level: int = ATOM


Term = Load | Apply | Name


def wrapped(text: str, level: int, least: int) -> str:
    return text if level >= least else f"({text})"


def offset(place: IndexTerm, by: str) -> IndexTerm:
    """The position plus a number or a name; `by` may begin with a minus."""
    if by in ("0", "-0"):
        return place
    sign, number = ("-", by[1:]) if by.startswith("-") else ("+", by)
    if place.text == "0":
        return IndexTerm(by, SUM if sign == "-" or " + " in by else PRODUCT if " * " in by else ATOM)
    return IndexTerm(f"{wrapped(place.text, place.level, SUM)} {sign} {number}", SUM, place.uses)


def flat(at: tuple[IndexTerm, ...], sizes: tuple[str, ...]) -> IndexTerm:
    """The position in a row-major tensor of these sizes."""
    found = ZERO
    for place, size in zip(at, sizes, strict=True):
        if size == "1":
            continue
        uses = found.uses | place.uses
        if found.text == "0":
            found = IndexTerm(place.text, place.level, uses)
            continue
        above = f"{wrapped(found.text, found.level, PRODUCT if found.level == PRODUCT else ATOM)} * {_factor(size)}"
        found = IndexTerm(above, PRODUCT, uses)
        if place.text != "0":
            found = IndexTerm(f"{above} + {wrapped(place.text, place.level, SUM)}", SUM, uses)
    return found


def _factor(size: str) -> str:
    return size if size.replace(".", "").replace("->", "").isalnum() or size.startswith("(") else f"({size})"


def digits(place: IndexTerm, sizes: tuple[str, ...]) -> tuple[IndexTerm, ...]:
    """The positions along dimensions of these sizes that a position in the flattened tensor stands for."""
    found = []
    for number, size in enumerate(sizes):
        below = [_factor(one) for one in sizes[number + 1 :] if one != "1"]
        if size == "1":
            found.append(ZERO)
            continue
        first = all(one == "1" for one in sizes[:number])
        text, level = place.text, place.level
        if below:
            divisor = below[0] if len(below) == 1 else "(" + " * ".join(below) + ")"
            text, level = f"{wrapped(text, level, PRODUCT)} / {divisor}", PRODUCT
        if not first:
            text, level = f"{wrapped(text, level, PRODUCT)} % {_factor(size)}", PRODUCT
        found.append(IndexTerm(text, level, place.uses))
    return tuple(found)


class TermWriter:
    """Writes one term. Values of the graph, and terms that are used twice, become variables, unless a condition guards
    them."""

    def __init__(self, load: Callable[[Load], str]) -> None:
        self._load = load
        self._lines: list[str] = []
        self._names: dict[int, tuple[str, int]] = {}
        self._reads: dict[int, int] = {}
        #: Values of the graph that no condition guards, by identity.
        self._own: dict[int, Apply] = {}
        self._left = LONGEST

    def written(self, term: Term) -> tuple[list[str], str]:
        """Returns the lines that define variables for values of the graph, in the graph's order, and the C text of
        `term`, which uses these variables.
        """
        self._count(term, 1)
        self._own.pop(id(term), None)
        for one in sorted(self._own.values(), key=lambda one: int(one.node[1:])):
            self._text(one)
        value, _ = self._text(term)
        return self._lines, value

    def _count(self, term: Term, times: int) -> None:
        """Counts how often each term is used."""
        known = id(term) in self._reads
        self._reads[id(term)] = self._reads.get(id(term), 0) + times
        if not known and isinstance(term, Apply):
            if is_node(term.node):
                self._own[id(term)] = term
            for number, arg in enumerate(term.args):
                if not (term.guarded and number):
                    self._count(arg, max(1, term.text.count(f"{{{number}}}")))

    def _text(self, term: Term, guarded: bool = False) -> tuple[str, int]:
        """C text and its precedence. Raises Unsupported if the text would be very long, because a guarded term is
        written out as often as it is used."""
        self._left -= 1
        if self._left < 0:
            raise Unsupported("an expression too long to write by hand")
        if id(term) in self._names:
            return self._names[id(term)]
        if isinstance(term, Name):
            return term.text, term.level
        found = (self._load(term), ATOM) if isinstance(term, Load) else self._apply(term, guarded)
        plain = isinstance(term, Load) and found[0].isidentifier()
        if not guarded and not plain and (id(term) in self._own or self._reads.get(id(term), 0) > 1):
            name = free_name(term.node if isinstance(term, Apply) else "", {name for name, _ in self._names.values()})
            self._lines.append(f"const {term.ctype} {name} = {found[0]};")
            found = self._names[id(term)] = (name, ATOM)
        return found

    def _apply(self, term: Apply, guarded: bool) -> tuple[str, int]:
        args = [self._text(arg, guarded or (term.guarded and number > 0)) for number, arg in enumerate(term.args)]
        template, level, slots = template_shape(term.text)
        needs = dict.fromkeys(range(len(args)), CHOICE)
        for place, need in () if term.guarded else slots:
            needs[place] = max(needs[place], need)
        return template.format(*(wrapped(text, own, needs[at]) for at, (text, own) in enumerate(args))), level


def below(term: Term) -> list[Term]:
    """All terms that a term consists of, each once, in the order in which they are read."""
    found: list[Term] = []
    seen: set[int] = set()
    stack = [term]
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        found.append(one)
        if isinstance(one, Apply):
            stack.extend(reversed(one.args))
    return found


def loads(term: Term) -> list[Load]:
    """All loads of a term, each once."""
    return [one for one in below(term) if isinstance(one, Load)]
