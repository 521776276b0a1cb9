"""Writes expressions as C++ as a person would: brackets only where they are needed, names for what is used twice."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import count

from kernel_assistant.generator.ir.expr import Const, Expr, Load, Op, Reduce, children
from kernel_assistant.generator.ir.sizes import Poly
from kernel_assistant.generator.print.render import literal
from kernel_assistant_training.teacher.text.lowering import Lowered
from kernel_assistant_training.teacher.text.sizes import NoForm

#: What has no expressions of its own under it. A tuple: a union would be made anew for each question.
ENDS = (Reduce, Load)
#: Precedences: choices, comparisons, sums, products, names and calls.
CHOICE, COMPARISON, SUM, PRODUCT, ATOM = range(5)
#: Normal numbers of float.
_SMALLEST, _LARGEST = 1.2e-38, 3.4e38
_SLOT = re.compile(r"\{(\d)\}")
#: The precedence that an argument needs, by the text before and after it.
_IN_FRONT = {**dict.fromkeys("*/%~!&|^)", ATOM), "+": PRODUCT}
_IN_FRONT |= {**dict.fromkeys("<>=", SUM), **dict.fromkeys("?:", COMPARISON)}
_BEHIND = {**dict.fromkeys("*/%", PRODUCT), **dict.fromkeys("+-<>=!", SUM), **dict.fromkeys("?:", COMPARISON)}
_BEHIND |= dict.fromkeys("&|^", ATOM)


@lru_cache(maxsize=1024)
def template_shape(text: str) -> tuple[str, int, tuple[tuple[int, int], ...]]:
    """A template without brackets around it, its precedence, and for each slot the argument's number and the precedence
    that the argument needs."""
    bare = text[1:-1] if _enclosed(text) else text
    slots = []
    for found in _SLOT.finditer(bare):
        before, after = bare[: found.start()].rstrip(), bare[found.end() :].lstrip()
        need = _IN_FRONT.get(before[-1:], CHOICE)
        if before[-1:] == "-":
            sign = before[:-1].rstrip()[-1:] in ("", *"(,?:=<>|&+-*/")
            need = ATOM if sign else PRODUCT
        slots.append((int(found[1]), max(need, _BEHIND.get(after[:1], CHOICE))))
    return bare, _binding(bare), tuple(slots)


def _enclosed(text: str) -> bool:
    """Whether the bracket with which the text begins closes at its end."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[:1] == "(" and place == len(text) - 1
    return False


def _binding(text: str) -> int:
    depth, binds = 0, ATOM
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and character in "+-*/%~!?<>=&|^":
            binary = text[place - 1 : place] == " "
            here = SUM if binary and character in "+-" else PRODUCT
            binds = min(binds, CHOICE if character == "?" else COMPARISON if character in "<>=&|^" else here)
    return binds


_ROUNDED = ("ka_round_bf16({0})", "ka_round_f16({0})")


def _is_flag(expr: Expr) -> bool:
    """Whether the expression is a condition converted to a number, which needs no rounding."""
    return isinstance(expr, Op) and expr.text == "(float){0}" and expr.args[0].ctype == "bool"


def is_node(name: str) -> bool:
    """Whether the task has a node of this name. Nodes that replace a composite operator have other names."""
    return name[:1] == "n" and name[1:].isdigit()


def free_name(node: str, taken: Collection[str]) -> str:
    """The node's name, with a number if it is taken; t0, t1, … for expressions that belong to no node."""
    if is_node(node):
        return numbered(node, taken)
    return next(name for number in count() if (name := f"t{number}") not in taken)


def numbered(name: str, taken: Collection[str]) -> str:
    """`name`, or if that is taken name_1, name_2, …"""
    return next(found for number in count() if (found := f"{name}_{number}" if number else name) not in taken)


class ExpressionWriter:
    """Writes the expressions of one task. `names` has the expressions that have a name in the scope, by id."""

    def __init__(self, lowered: Lowered) -> None:
        self._sizes, self._constants = lowered.sizes, lowered.constants

    def text(self, expr: Expr, names: dict[int, str], need: int = CHOICE) -> str:
        name = names.get(id(expr))
        if name is not None:
            return name
        if isinstance(expr, Const):
            return self.constant(expr, need)
        if not isinstance(expr, Op):
            raise NoForm(f"{type(expr).__name__} inside an expression")
        template = expr.text
        if template == "{0}" or (template in _ROUNDED and _is_flag(expr.args[0])):
            return self.text(expr.args[0], names, need)
        template, binds, slots = template_shape(template)
        texts = iter([self.text(expr.args[place], names, wanted) for place, wanted in slots])
        found = _SLOT.sub(lambda _: next(texts), template)
        return f"({found})" if binds < need else found

    def constant(self, expr: Const, need: int = CHOICE) -> str:
        value = expr.value
        if isinstance(value, float) and value in self._constants:
            return self._constants[value]
        if isinstance(value, Poly) or (isinstance(value, int) and not isinstance(value, bool) and value > 16):
            text = self._sizes.code(value)
            if need == CHOICE or expr.ctype == "int64_t":
                return text if expr.ctype == "int64_t" else f"({expr.ctype}){self._sizes.factor(value)}"
            return f"({text})" if " " in text and not text.startswith("(") else text
        if isinstance(value, float) and expr.ctype in ("float", "") and _SMALLEST < abs(value) < _LARGEST:
            return f"({value!r}f)" if value < 0 else f"{value!r}f"
        return literal(value, expr.ctype or "float")

    def lambda_(
        self, result: Expr, names: dict[int, str], parameters: Sequence[tuple[str, str]], captures: bool
    ) -> str:
        """`[](float x0) { return …; }`. `parameters` are (type, name)."""
        lines, own = self.named(result, names)
        head = f"[{'=' if captures else ''}]({', '.join(f'{ctype} {name}'.strip() for ctype, name in parameters)})"
        value = self.text(result, own)
        if not lines:
            return f"{head} {{ return {value}; }}"
        body = "".join(f"\n  {line}" for line in lines)
        return f"{head} {{{body}\n  return {value};\n}}"

    def named(self, result: Expr, names: dict[int, str]) -> tuple[list[str], dict[int, str]]:
        """Lines that define variables for values of the graph below `result` and for what it uses more than once; and
        the names including these."""
        own, taken = dict(names), set(names.values())
        lines: list[str] = []
        for expr in self.to_name(result, names):
            text = self.text(expr, own)
            own[id(expr)] = name = free_name(expr.node, taken)
            taken.add(name)
            lines.append(f"const {expr.ctype} {name} = {text};")
        return lines, own

    def to_name(self, result: Expr, names: dict[int, str]) -> list[Expr]:
        """The expressions below `result` that get a variable: values of the graph in its order, others before what uses
        them."""
        uses: dict[int, int] = {}
        order: list[Expr] = []
        self._count(result, names, uses, order)
        wanted = [expr for expr in order if expr is not result and (uses[id(expr)] > 1 or is_node(expr.node))]
        found: dict[int, Expr] = {}
        for expr in sorted(filter(lambda one: is_node(one.node), wanted), key=lambda one: int(one.node[1:])):
            inside = {id(one) for one in below([expr], found)}
            found.update((id(one), one) for one in wanted if id(one) in inside)
        found.update((id(one), one) for one in wanted)
        return list(found.values())

    def _count(self, expr: Expr, names: dict[int, str], uses: dict[int, int], order: list[Expr]) -> None:
        if id(expr) in names or isinstance(expr, Const):
            return
        uses[id(expr)] = uses.get(id(expr), 0) + 1
        if uses[id(expr)] > 1:
            return
        if not isinstance(expr, Op):
            raise NoForm(f"{type(expr).__name__} inside an expression")
        if expr.text == "{0}" or (expr.text in _ROUNDED and _is_flag(expr.args[0])):
            uses[id(expr)] -= 1
            self._count(expr.args[0], names, uses, order)
            return
        for place, _ in template_shape(expr.text)[2]:
            self._count(expr.args[place], names, uses, order)
        order.append(expr)


def stored(expr: Expr, dtype: str) -> Expr:
    """The expression without its last rounding, if that is to `dtype`, because the store rounds to it anyway."""
    return expr.args[0] if isinstance(expr, Op) and expr.text == f"ka_round_{dtype}({{0}})" else expr


def below(roots: Iterable[Expr], stop: Iterable[int] = ()) -> list[Expr]:
    """All expressions that `roots` consist of, each once, after those that use it. Those in `stop`, and what is only
    below them, are left out."""
    seen, found = set(stop), []
    stack = list(roots)[::-1]
    while stack:
        expr = stack.pop()
        if id(expr) in seen:
            continue
        seen.add(id(expr))
        found.append(expr)
        if not isinstance(expr, ENDS):
            stack.extend(children(expr)[::-1])
    return found
