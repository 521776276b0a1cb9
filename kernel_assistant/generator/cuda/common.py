"""What all CUDA forms share: pointers, scope values, reduction operators, joint reductions."""

from __future__ import annotations

from kernel_assistant.generator.cpu.common import IDENTITY
from kernel_assistant.generator.expr import Axis, Expr, Load, Op, Reduce
from kernel_assistant.generator.lower import Output
from kernel_assistant.generator.nest import Access, Nest, accesses
from kernel_assistant.generator.passes import Pass, joint_reduce
from kernel_assistant.generator.render import Body, Unit, element, joined

OPERATOR = {"sum": "ka_sum", "prod": "ka_prod", "max": "ka_top", "min": "ka_bottom"}
STEP = {"sum": "{0} += {1};", "prod": "{0} *= {1};", "max": "{0} = ka_max({1}, {0});", "min": "{0} = ka_min({1}, {0});"}
#: Joint reductions: (per-thread state, joined state, operator).
JOINT = {
    "m2": ("ka_moments_of", "ka_moments", "ka_chan"),
    "sumexp": ("ka_exponents", "ka_exponents", "ka_rescale"),
}


def identity(reduce: Reduce) -> str:
    return IDENTITY[reduce.kind, "float" if reduce.ctype == "double" else reduce.ctype]


def pointers(unit: Unit, nest: Nest, axes: list[Axis], var: str) -> None:
    """A pointer per access, moved to where the outer loops stand."""
    for access in accesses(nest):
        place = joined(unit.size(access.offset) if access.offset != 0 else "", unit.position(access, axes, var))
        if not access.buffer:
            unit.add_if_used(access.name or "at", f"const int64_t {access.name or 'at'} = {place};")
            continue
        const = "" if access.buffer.startswith("out") else "const "
        kind = f"{const}{element(access, 'cuda')}* __restrict__"
        tail = "" if place == "0" else f" + {place}"
        unit.add_if_used(access.name, f"{kind} {access.name} = {unit.buffer(access.buffer)}{tail};")


def scope_loads(unit: Unit, nest: Nest, *loops: tuple[list[Axis], str]) -> dict[int, str]:
    """Text of loads that do not vary along R."""
    found = {}
    for access in dict.fromkeys(nest.loads.values()):
        place = joined(*(unit.position(access, axes, var) for axes, var in loops))
        found[id(access)] = unit.fetch(access, place)
    return found


def write_scope(body: Body, scope: list[Expr]) -> None:
    body.write(scope, scope_loads(body.unit, body.nest), "s")


def store_scope(body: Body, stores: list[tuple[Access, Output]], guard: str) -> None:
    """Outputs that do not vary along R, written by one thread."""
    if not stores:
        return
    body.unit.open(f"if ({guard})" if guard else "")
    for access, output in stores:
        body.unit.add(f"ka_put({access.name}[0], {body.name(output.expr)});")
    body.unit.close()


def is_kept(expr: Expr) -> bool:
    """In registers everything is kept but positions, which cost nothing to have again."""
    return not (isinstance(expr, Load) and not expr.buffer)


class Reducing:
    """The reductions that end in one pass: single ones, and pairs that share the pass."""

    def __init__(self, nest: Nest, part: Pass, joint: bool | str) -> None:
        self.nest = nest
        self.pairs: list[tuple[str, Expr, Reduce, Reduce]] = []
        paired: set[int] = set()
        for reduce in part.reduces:
            together = joint_reduce(reduce, joint)
            if together is not None:
                kind, x, first = together
                self.pairs.append((kind, x, first, reduce))
                paired |= {id(first), id(reduce)}
        self.single = [reduce for reduce in part.reduces if id(reduce) not in paired]

    def number(self, reduce: Reduce) -> int:
        return self.nest.reduces.index(reduce)

    def declare(self, unit: Unit) -> None:
        for reduce in self.single:
            unit.add(f"{reduce.ctype} r{self.number(reduce)} = {identity(reduce)};")
        for kind, x, _, reduce in self.pairs:
            none = f" = ka_exponents<{x.ctype}>::none()" if kind == "sumexp" else ""
            unit.add(f"{JOINT[kind][0]}<{x.ctype}> j{self.number(reduce)}{none};")

    def before(self, unit: Unit, vec: int) -> None:
        """Before the element loop: where a pair takes whole vectors."""
        for kind, x, _, reduce in self.pairs:
            if kind == "sumexp":
                unit.add(f"{x.ctype} v{self.number(reduce)}[{vec}];")

    def element(self, unit: Unit, inner: Body, inside: str) -> None:
        """Inside the element loop."""
        guard = f"if ({inside}) " if inside else ""
        for reduce in self.single:
            unit.add(guard + STEP[reduce.kind].format(f"r{self.number(reduce)}", inner.name(reduce.arg)))
        for kind, x, _, reduce in self.pairs:
            number = self.number(reduce)
            if kind == "sumexp":
                value = f"{inside} ? {inner.name(x)} : ({x.ctype})(-INFINITY)" if inside else inner.name(x)
                unit.add(f"v{number}[k] = {value};")
            else:
                unit.add(f"{guard}j{number}.add({inner.name(x)});")

    def after(self, unit: Unit) -> None:
        """After the element loop."""
        for kind, _, _, reduce in self.pairs:
            if kind == "sumexp":
                unit.add(f"j{self.number(reduce)}.add(v{self.number(reduce)});")

    def states(self) -> list[tuple[str, str, str, str]]:
        """(variable with the thread's state, type, operator, neutral value) of each reduction."""
        found = [
            (f"r{self.number(reduce)}", reduce.ctype, OPERATOR[reduce.kind], f"({reduce.ctype}){identity(reduce)}")
            for reduce in self.single
        ]
        for kind, x, _, reduce in self.pairs:
            state = f"{JOINT[kind][1]}<{x.ctype}>"
            done = ".done()" if kind == "m2" else ""
            found.append((f"j{self.number(reduce)}{done}", state, JOINT[kind][2], f"{state}::none()"))
        return found

    def finish(self, body: Body, threads: int, cluster: int, site: int = 0) -> None:
        """Reduce over the threads (and blocks of the cluster) of a row, and name the results.

        `site` tells apart the places of a kernel where the same reduction ends.
        """
        for name, state, operator, none in self.states():
            number = name.split(".")[0]
            kind = f"ka_reduce<{site + int(number[1:])}, {threads}, {cluster}, {operator}>"
            body.unit.add(f"const {state} all_{number} = {kind}({name}, {none});")
        self.take(body, "all_")

    def take(self, body: Body, prefix: str, suffix: str = "") -> None:
        """Name the results, which are in variables with this prefix."""
        for reduce in self.single:
            body.names[id(reduce)] = f"{prefix}r{self.number(reduce)}{suffix}"
        for kind, x, first, reduce in self.pairs:
            name = f"{prefix}j{self.number(reduce)}{suffix}"
            sum_text = f"({name}.mean * {name}.count)"
            body.names[id(first)] = sum_text if kind == "m2" else f"{name}.top"
            if kind == "m2":
                # Not the sum divided again: a mean of equal values is that value, as in PyTorch.
                body.names[id(_mean_within(reduce, first))] = f"{name}.mean"
            body.names[id(reduce)] = f"{name}.m2" if kind == "m2" else f"{name}.total"
            assert x.ctype == reduce.ctype


def _mean_within(squares: Reduce, total: Reduce) -> Expr:
    """The mean around which a joint reduction takes squares; the reduction itself where it is written otherwise."""
    square = squares.arg
    mean = square.args[1] if isinstance(square, Op) and len(square.args) == 2 else None
    return mean if isinstance(mean, Op) and mean.args[0] is total else squares
