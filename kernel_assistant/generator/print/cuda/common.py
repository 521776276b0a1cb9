"""Code that all CUDA forms share: pointers, values that do not vary along R, reduction operators, joint reductions."""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Axis, Expr, Load, Reduce
from kernel_assistant.generator.ir.sizes import Size
from kernel_assistant.generator.loops.nest import Access, LoopNest
from kernel_assistant.generator.loops.passes import Pass, given_moments, joint_reduce
from kernel_assistant.generator.lower.lower import Output
from kernel_assistant.generator.print.cpu.common import IDENTITY
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, joined

OPERATOR = {"sum": "ka_sum", "prod": "ka_prod", "max": "ka_top", "min": "ka_bottom", "logaddexp": "ka_exponential_sum"}
STEP = {"sum": "{0} += {1};", "prod": "{0} *= {1};", "max": "{0} = ka_max({1}, {0});", "min": "{0} = ka_min({1}, {0});"}
#: Joint reductions: (per-thread state, joined state, operator).
JOINT = {
    "m2": ("ka_moments_of", "ka_moments", "ka_chan"),
    "sumexp": ("ka_exponents", "ka_exponents", "ka_rescale"),
}


#: Most bytes of shared memory that a kernel may declare.
STATIC_LIMIT = 48 * 1024
#: Registers of a multiprocessor, and of a thread at most.
REGISTERS, MOST_REGISTERS = 65536, 255
#: Sizes of clusters that some GPU has.
CLUSTERS = (1, 2, 4, 8, 16)
#: As many additions one after the other keep a float32 sum within a few units in its last place.
MANY = 64


def many_additions(size: Size, threads: int) -> bool:
    """Whether a thread adds more than `MANY` elements to one sum if `threads` threads share `size` elements; true if
    `size` depends on free dimensions."""
    return not isinstance(size, int) or size > MANY * threads


def identity(reduce: Reduce) -> str:
    return IDENTITY[reduce.kind, "float" if reduce.ctype == "double" else reduce.ctype]


def scope_loads(unit: KernelSource, nest: LoopNest, *loops: tuple[list[Axis], str]) -> dict[int, str]:
    """Returns the C text of every load, by the `id` of its access, for values that do not vary along R. `loops` gives
    the position, as pairs of axes and the variable that counts along them.
    """
    texts = {}
    for access in dict.fromkeys(nest.loads.values()):
        position = joined(*(unit.position(access, axes, var) for axes, var in loops))
        texts[id(access)] = unit.fetch(access, position)
    return texts


def write_scope(body: StatementWriter, scope: list[Expr]) -> None:
    body.write(scope, scope_loads(body.unit, body.nest), "s")


def store_scope(body: StatementWriter, stores: list[tuple[Access, Output]], guard: str) -> None:
    """Writes code that stores the outputs that do not vary along R, the reduced loop. Only a thread for which the
    condition `guard` holds stores them; if `guard` is "", every thread does."""
    if not stores:
        return
    body.unit.open(f"if ({guard})" if guard else "")
    for access, output in stores:
        body.unit.add(f"ka_put({access.name}[0], {body.name(output.expr)});")
    body.unit.close()


def is_kept(expr: Expr) -> bool:
    """Whether a value is kept in registers for later passes: true for all except positions, which cost nothing to
    recompute."""
    return not (isinstance(expr, Load) and not expr.buffer)


class PassReductions:
    """The reductions that one pass completes: `single` ones, and `pairs` that are computed together, such as mean and
    variance; `joint` selects the kinds of pairs. With `many`, a thread makes so many additions that float32 sums are
    compensated: once for each vector, they add the rounding error of earlier additions.
    """

    def __init__(self, nest: LoopNest, part: Pass, joint: bool | str, many: bool = False) -> None:
        self.nest, self.many = nest, many
        self.pairs: list[tuple[str, Expr, Reduce, Reduce]] = []
        paired: set[int] = set()
        for reduce in part.reduces:
            together = joint_reduce(reduce, joint)
            if together is not None:
                kind, x, first = together
                self.pairs.append((kind, x, first, reduce))
                paired |= {id(first), id(reduce)}
        self.single = [reduce for reduce in part.reduces if id(reduce) not in paired]

    def label(self, reduce: Reduce) -> str:
        """Returns the end of the names of a reduction's C variables, behind the letter r, j or v."""
        return self.nest.result(reduce)[1:]

    def site(self, reduce: Reduce) -> int:
        """Returns the index of the reduction among all reductions of the nest, which makes its calls of `ka_reduce`
        different from those of other reductions."""
        return self.nest.reduces.index(reduce)

    @property
    def sums(self) -> list[str]:
        """The labels of the single sums that are compensated for rounding errors."""
        return [self.label(one) for one in self.single if self.many and (one.kind, one.ctype) == ("sum", "float")]

    def declare(self, unit: KernelSource) -> None:
        for reduce in self.single:
            unit.add(f"{reduce.ctype} r{self.label(reduce)} = {identity(reduce)};")
        for label in self.sums:
            unit.add(f"float total_r{label} = 0, rest_r{label} = 0;")
        for kind, x, _, reduce in self.pairs:
            none = f" = ka_exponents<{x.ctype}>::none()" if kind == "sumexp" else ""
            unit.add(f"{JOINT[kind][0]}<{x.ctype}> j{self.label(reduce)}{none};")

    def before(self, unit: KernelSource, vec: int) -> None:
        """Writes the declarations before the element loop for pairs of reductions that process whole vectors."""
        for kind, x, _, reduce in self.pairs:
            if kind == "sumexp":
                unit.add(f"{x.ctype} v{self.label(reduce)}[{vec}];")

    def element(self, unit: KernelSource, inner: StatementWriter, inside: str) -> None:
        """Writes the code of the reductions inside the element loop; `inside` is the condition that the element exists,
        "" if it always does.
        """
        guard = f"if ({inside}) " if inside else ""
        for reduce in self.single:
            unit.add(guard + STEP[reduce.kind].format(f"r{self.label(reduce)}", inner.name(reduce.arg)))
        for kind, x, _, reduce in self.pairs:
            label = self.label(reduce)
            if kind == "sumexp":
                value = f"{inside} ? {inner.name(x)} : ({x.ctype})(-INFINITY)" if inside else inner.name(x)
                unit.add(f"v{label}[k] = {value};")
            else:
                unit.add(f"{guard}j{label}.add({inner.name(x)});")

    def after(self, unit: KernelSource) -> None:
        """Writes the code of the reductions after the element loop."""
        for kind, _, _, reduce in self.pairs:
            if kind == "sumexp":
                unit.add(f"j{self.label(reduce)}.add(v{self.label(reduce)});")
        self.keep(unit)

    def keep(self, unit: KernelSource) -> None:
        """Writes code that adds the sums since the last call, with their rounding error, to the compensated totals."""
        for label in self.sums:
            unit.add(f"ka_keep(r{label}, total_r{label}, rest_r{label});")
        for kind, x, _, reduce in self.pairs:
            if self.many and kind == "m2" and x.ctype == "float":
                unit.add(f"ka_keep(j{self.label(reduce)});")

    def fold(self, unit: KernelSource) -> None:
        """Writes code that stores the total of each compensated sum in its variable r…."""
        for label in self.sums:
            unit.add(f"ka_kept(r{label}, total_r{label}, rest_r{label});")

    def states(self) -> list[tuple[int, str, str, str, str]]:
        """Returns (site, C text of the thread's partial result, C type, operator, neutral value) of each reduction."""
        states = [
            (self.site(one), f"r{self.label(one)}", one.ctype, OPERATOR[one.kind], f"({one.ctype}){identity(one)}")
            for one in self.single
        ]
        for kind, x, _, reduce in self.pairs:
            state = f"{JOINT[kind][1]}<{x.ctype}>"
            done = ".done()" if kind == "m2" else ""
            variable = f"j{self.label(reduce)}{done}"
            states.append((self.site(reduce), variable, state, JOINT[kind][2], f"{state}::none()"))
        return states

    def finish(self, body: StatementWriter, threads: int, cluster: int, site: int = 0) -> None:
        """Writes code that reduces over the threads (and blocks of the cluster) of a row, and registers the results in
        `body`.

        `site` is a number that differs for each position in the kernel at which the same reduction is completed.
        """
        self.fold(body.unit)
        for own, name, state, operator, none in self.states():
            kind = f"ka_reduce<{site + own}, {threads}, {cluster}, {operator}>"
            body.unit.add(f"const {state} all_{name.split('.')[0]} = {kind}({name}, {none});")
        self.take(body, "all_")

    def take(self, body: StatementWriter, prefix: str, suffix: str = "") -> None:
        """Registers in `body` the C texts of the reductions' results, which are in variables whose names begin with
        `prefix`; `suffix` is an index such as "[k]" behind the names."""
        for reduce in self.single:
            body.names[id(reduce)] = f"{prefix}r{self.label(reduce)}{suffix}"
        for kind, x, first, reduce in self.pairs:
            name = f"{prefix}j{self.label(reduce)}{suffix}"
            if kind == "m2":
                self._take_moments(body, name, first, reduce)
            else:
                body.names[id(first)], body.names[id(reduce)] = f"{name}.top", f"{name}.total"
            assert x.ctype == reduce.ctype

    def _take_moments(self, body: StatementWriter, name: str, total: Reduce, squares: Reduce) -> None:
        """Registers in `body` the values that the moments in the variable `name` give: the sum, Σ(x - mean)², and
        expressions that are equal to the mean or to Σ(x - mean)².
        """
        body.names[id(total)] = f"({name}.mean * {name}.count)"
        body.names[id(squares)] = f"{name}.m2"
        # Not the sum divided again: a mean of equal values is that value, as in PyTorch.
        means, spreads = given_moments(self.nest, total, squares)
        body.names.update((id(mean), f"{name}.mean") for mean in means)
        body.names.update((id(spread), f"{name}.m2") for spread in spreads)
