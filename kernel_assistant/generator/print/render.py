"""Writes expressions and positions as C text, and collects the arguments and lines of a kernel."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Axis, Const, Expr, Load, Op, children
from kernel_assistant.generator.ir.labels import VariableNames
from kernel_assistant.generator.ir.literals import to_float32
from kernel_assistant.generator.ir.named import NamedNumber, NamedSize
from kernel_assistant.generator.ir.sizes import Poly, Size, add, mul, product, size_text, symbols_of
from kernel_assistant.generator.loops.nest import Access, LoopNest, accesses
from kernel_assistant.records import Launch

#: Positions below this have room in 32 bits, vectors behind the end included.
SHORT = 2**31 - 2**22

#: Element types of buffers in C, by target.
ELEMENT = {
    "f64": "double",
    "f32": "float",
    "i64": "int64_t",
    "i32": "int32_t",
    "i16": "int16_t",
    "i8": "int8_t",
    "u8": "uint8_t",
    "b1": "bool",
}
HALF = {"cpu": {"bf16": "ka_bf16", "f16": "_Float16"}, "cuda": {"bf16": "__nv_bfloat16", "f16": "__half"}}
ELEMENTS = {target: {**ELEMENT, **half} for target, half in HALF.items()}


def literal(value: float | Size | bool, ctype: str) -> str:
    """Returns a number or size as a C constant of type `ctype`; a negative number is in parentheses."""
    if isinstance(value, Poly):
        return f"(({ctype})({size_text(value)}))"
    if ctype == "bool":
        return "true" if value else "false"
    if ctype == "int64_t":
        text = str(value) if isinstance(value, NamedSize) else str(int(value))
        return f"({text})" if value < 0 or "*" in text else text
    if isinstance(value, NamedSize):
        return f"(({ctype})({value}))"
    if isinstance(value, NamedNumber) and ctype == "float":
        return str(value)
    return _real(float(value), ctype)


def unsigned(size: Size) -> str:
    """Returns a size as an unsigned C constant. Raises Unsupported if the size depends on free dimensions."""
    if isinstance(size, Poly):
        raise Unsupported(f"a window over the free size {size_text(size)}")
    return f"(unsigned)({size})" if isinstance(size, NamedSize) else f"{size}u"


def _real(value: float, ctype: str) -> str:
    suffix = "f" if ctype == "float" else ""
    if math.isnan(value):
        return f"({ctype})NAN"
    if ctype == "float":
        value = to_float32(value)
    if math.isinf(value):
        return f"({ctype})INFINITY" if value > 0 else f"({ctype})(-INFINITY)"
    text = f"{value:.9g}" if ctype == "float" else repr(value)
    if not any(char in text for char in ".en"):
        text += ".0"
    return f"({text}{suffix})" if text.startswith("-") else text + suffix


@dataclass(slots=True)
class KernelSource:
    """The source of one kernel while it is written. `symbol` is its function name, `args` has the buffers that it takes
    as arguments, `symbols` the argument names of free dimensions, `lines` the function's body, and `source` the
    complete text after `finish`. `optional` maps the index of a line that is left out if no later line reads a variable
    to the name of this variable."""

    symbol: str
    target: str
    args: dict[str, str] = field(default_factory=dict)
    symbols: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    source: str = ""
    optional: dict[int, str] = field(default_factory=dict)

    def size(self, size: Size) -> str:
        """Returns C text of a size, and makes the free dimensions in it arguments of the kernel."""
        for name in symbols_of(size):
            if name not in self.symbols:
                self.symbols[name] = f"dim_{name}" if name.isidentifier() else f"dim_{len(self.symbols)}"
        return size_text(size, self.symbols)

    def divisor(self, size: Size) -> str:
        """Returns C text of a size that can stand behind a division sign: in parentheses if it is a product."""
        text = self.size(size)
        return f"({text})" if "*" in text else text

    def add(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def add_if_used(self, name: str, line: str) -> None:
        """Adds the declaration `line` of `name`, which is left out if no later line reads the name."""
        self.optional[len(self.lines)] = name
        self.add(line)

    def _kept_lines(self) -> list[str]:
        """Returns the lines without the declarations of variables that no line reads, or only lines that are left out
        too."""
        kept: list[str] = []
        for at in range(len(self.lines) - 1, -1, -1):
            if at not in self.optional or _reads(kept, self.optional[at], self.lines[at]):
                kept.append(self.lines[at])
        return kept[::-1]

    def open(self, line: str) -> None:
        self.add(line + " {" if line else "{")
        self.depth += 1

    def close(self, tail: str = "") -> None:
        self.depth -= 1
        self.add("}" + tail)

    def buffer(self, name: str) -> str:
        """Returns C text that reads the buffer `name` from the argument struct. Makes the buffer an argument of the
        kernel."""
        self.args[name] = name
        return f"a->{name}" if self.target == "cpu" else f"a.{name}"

    def fetch(self, access: Access, position: str, inside: str = "", always: bool = False) -> str:
        """Returns the C text of a load of the element at `position`. The caller replaces {0}, {1}, … in it by the C
        texts of the access's terms (the computed parts of its index) and of its guard (its condition), in this order.

        Where the C condition `inside` is false, a load at a computed position reads nothing and gives 0; with `always`,
        this holds for every load.
        """
        if not access.buffer:
            return f"{access.name} + {position}"
        parts = [position] if position != "0" or not access.terms else []
        for number, (step, _) in enumerate(access.terms):
            parts.append(f"{{{number}}}" if step == 1 else f"{self.size(step)} * {{{number}}}")
        text = f"ka_get({access.name}[{' + '.join(parts)}])"
        guard = [f"{{{len(access.terms)}}}"] if access.guard is not None else []
        exists = " && ".join([inside] * bool(inside and (always or access.computed)) + guard)
        return f"({exists} ? {text} : ({COMPUTE[access.dtype]})0)" if exists else text

    def launch(self, grid: tuple[str, str, str] = ("1", "1", "1"), block: int = 1, shared: str = "0") -> Launch:
        sizes = tuple((field_, name) for name, field_ in self.symbols.items())
        return Launch(
            symbol=self.symbol,
            args=(*self.args.items(), *sizes),
            grid=grid,
            block=(str(block), "1", "1"),
            shared=shared,
        )

    def finish(self, before: str = "", bounds: str = "") -> None:
        """Assembles the whole function in `source`: `before` is the text in front of it, `bounds` are its launch
        attributes.
        """
        arrow = "->" if self.target == "cpu" else "."
        sizes = [f"  const int64_t {name} = a{arrow}{name};" for name in self.symbols.values()]
        name = self.symbol
        if self.target == "cpu":
            head = f'extern "C" {bounds}void {name}(const {name}_args* a) {{'
        else:
            head = f'extern "C" __global__ void {bounds}{name}(const __grid_constant__ {name}_args a) {{'
        self.source = "\n".join([*([before] if before else []), head, *sizes, *self._kept_lines(), "}"]) + "\n"

    def position(self, access: Access, axes: list[Axis], var: str) -> str:
        """Returns C text of the index of `access` in its buffer, as far as it depends on the loops `axes`: the sum of
        stride · (position along the loop). The C variable `var` counts through all these loops together. Returns "" if
        the sum is 0."""
        step = access.linear(axes)
        if step is not None:
            return self.times(step, var, product([axis.size for axis in axes]))
        parts = []
        for index, (axis, coefficient) in enumerate(zip(axes, access.along(axes), strict=True)):
            if coefficient == 0:
                continue
            below = product([inner.size for inner in axes[index + 1 :]])
            digit = var if below == 1 else f"{var} / {self.divisor(below)}"
            if index:
                digit = f"{digit} % {self.divisor(axis.size)}"
            parts.append(self.times(coefficient, digit if digit == var else f"({digit})", axis.size))
        return " + ".join(parts)

    def times(self, step: Size, var: str, count: Size) -> str:
        """Returns C text of step·var, in 64 bits where 32 may not be enough. `var` is a text whose value is below
        `count`; "" if `step` is 0."""
        if step == 0:
            return ""
        if step == 1:
            return var
        extent = mul(step, count)
        wide = isinstance(step, int) and not (isinstance(extent, int) and 0 <= extent < SHORT)
        return f"{'(int64_t)' if wide else ''}{self.size(step)} * {var}"


def _reads(later: list[str], name: str, declaration: str) -> bool:
    """Whether a line after the line `declaration`, in the same C block, reads the variable `name`. `later` has all
    lines after the declaration, last line first."""
    # Not the struct's field of the same name.
    word = rf"(?<![.>\w]){name}\b"
    indent = len(declaration) - len(declaration.lstrip())
    for line in reversed(later):
        if line[:indent].strip():
            return False
        if name in line and re.search(word, line):
            return True
    return False


class StatementWriter:
    """Writes expressions as statements into a kernel's source. `names` maps the `id` of a computed expression to its C
    text; `inner` makes a writer for an inner scope, with a copy of `names`.
    """

    def __init__(
        self,
        unit: KernelSource,
        nest: LoopNest,
        names: dict[int, str] | None = None,
        variables: VariableNames | None = None,
    ) -> None:
        self.unit = unit
        self.nest = nest
        self.names: dict[int, str] = dict(names or {})
        self._variables = variables or VariableNames()

    def inner(self) -> StatementWriter:
        return StatementWriter(self.unit, self.nest, self.names, self._variables.copied())

    def name(self, expr: Expr) -> str:
        """Returns the C text of `expr`, which must be computed already: its variable, or a literal."""
        text = self.names.get(id(expr))
        if text is None:
            if not isinstance(expr, Const):
                raise AssertionError(f"{expr} is read before it is written")
            if isinstance(expr.value, Poly):
                self.unit.size(expr.value)
                text = f"(({expr.ctype})({size_text(expr.value, self.unit.symbols)}))"
            else:
                text = literal(expr.value, expr.ctype)
            self.names[id(expr)] = text
        return text

    def fresh(self, prefix: str, expr: Expr) -> str:
        """Returns a new variable name for `expr`, which begins with `prefix`."""
        return self._variables.new(prefix, expr)

    def write(self, exprs: list[Expr], load: dict[int, str], prefix: str = "t") -> None:
        """Writes statements that compute `exprs` in order, each into a new variable whose name begins with `prefix`;
        with the prefix "s", those that no line reads are left out. `load` has the C text of each load, by the `id` of
        its access.
        """
        for expr in exprs:
            if id(expr) in self.names or isinstance(expr, Const):
                continue
            if isinstance(expr, Op):
                text = expr.text.format(*[self.name(arg) for arg in expr.args])
            elif isinstance(expr, Load):
                text = load[id(self.nest.loads[id(expr)])]
                if expr.terms or expr.guard is not None:
                    text = text.format(*[self.name(child) for child in children(expr)])
                if not expr.buffer:
                    text = f"(int64_t)({text})"
            else:
                text = self.name(expr)
            name = self.fresh(prefix, expr)
            line = f"const {expr.ctype} {name} = {text};"
            # A launch that only needs part of what others computed leaves the rest out.
            if prefix == "s":
                self.unit.add_if_used(name, line)
            else:
                self.unit.add(line)
            self.names[id(expr)] = name


def joined(*parts: str) -> str:
    """Returns C text of the sum of the parts that are not empty; "0" if all are empty."""
    return " + ".join(part for part in parts if part) or "0"


def element(access: Access, target: str) -> str:
    return ELEMENTS[target][access.dtype]


def pointers(unit: KernelSource, nest: LoopNest, axes: list[Axis], var: str) -> None:
    """Writes the declaration of one C pointer for each load and store of the nest, to its element at the current
    position of the loops `axes`; the C variable `var` counts through these loops together."""
    for access in accesses(nest):
        position = joined(unit.size(access.offset) if access.offset != 0 else "", unit.position(access, axes, var))
        if not access.buffer:
            unit.add_if_used(access.name, f"const int64_t {access.name} = {position};")
            continue
        const = "" if access.buffer.startswith("out") else "const "
        kind = f"{const}{element(access, unit.target)}* __restrict__"
        tail = "" if position == "0" else f" + {position}"
        unit.add_if_used(access.name, f"{kind} {access.name} = {unit.buffer(access.buffer)}{tail};")


def compute(access: Access) -> str:
    return COMPUTE[access.dtype]


def rows_size(nest: LoopNest) -> Size:
    return nest.size(nest.outer)


def total_size(nest: LoopNest) -> Size:
    return mul(mul(nest.size(nest.outer), nest.size(nest.reduced)), nest.size(nest.inner))


__all__ = [
    "KernelSource",
    "StatementWriter",
    "add",
    "compute",
    "element",
    "joined",
    "literal",
    "pointers",
    "rows_size",
    "total_size",
    "unsigned",
]
