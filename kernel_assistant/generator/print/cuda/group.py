"""Writes the code for one vector of neighbouring positions: its loads, its element loop, its stores."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernel_assistant.generator.ir.expr import Axis, Expr, Load
from kernel_assistant.generator.ir.sizes import Size, add, mul, multiple_of
from kernel_assistant.generator.loops.nest import Access, LoopNest, accesses
from kernel_assistant.generator.lower.lower import Output
from kernel_assistant.generator.print.render import SHORT, KernelSource, StatementWriter, element, joined

Loops = tuple[list[Axis], str]


@dataclass(slots=True)
class VectorLayout:
    """How the positions of a row (the loops `axes`) are grouped into vectors of `vec` elements. In the C code, e is the
    first position of a vector, and k counts its elements.

    `vector`, `stepped`, `still` and `again` have the `id`s of accesses (loads and stores). Those in `vector` move whole
    vectors, others single elements. `stepped`: those of `vector` whose address is computed for each vector, because the
    row consists of pieces. `still`: loads with the same value for all elements of a vector. `again`: accesses that many
    rows or pieces of a row share, so that they stay in the caches. If `shift` is an access, the first vector of a row
    may begin before the row, so that the vectors of this access are aligned.

    `hint`: 1 for streaming loads and stores. `full`: no vector has elements outside the row. `even`: each vector is
    inside or outside as a whole. `index`: C type of positions. `limit`: C text of the end of the row. `at`: format that
    turns "e + k" into a position; `reverse`: positions count from the end. `loops`: further loops whose variables do
    not change within a vector.
    """

    axes: list[Axis]
    vec: int
    hint: int = 0
    full: bool = False
    even: bool = False
    index: str = "int"
    limit: str = "R"
    at: str = "{}"
    reverse: bool = False
    shift: Access | None = None
    vector: set[int] = field(default_factory=set)
    stepped: set[int] = field(default_factory=set)
    still: set[int] = field(default_factory=set)
    again: set[int] = field(default_factory=set)
    loops: list[Loops] = field(default_factory=list)

    def inside(self) -> str:
        """Returns the condition, as C text, that element k exists; "" if it always does."""
        if self.full:
            return ""
        return f"e + k < {self.limit}" if self.shift is None else f"e + k >= 0 && e + k < {self.limit}"

    def position(self) -> str:
        return self.at.format("e + k")


def congruent(a: Access, b: Access, outer: list[Axis], vec: int) -> bool:
    """Whether the indices of a and b differ by a multiple of `vec` at every position of the outer loops, so that both
    can be aligned at once."""
    pairs = zip(a.along(outer), b.along(outer), strict=True)
    same = multiple_of(add(a.offset, mul(-1, b.offset)), vec)
    return same and all(multiple_of(add(x, mul(-1, y)), vec) for x, y in pairs)


def make_layout(
    nest: LoopNest, axes: list[Axis], outer: list[Axis], vec: int, hint: int, shiftable: bool
) -> VectorLayout:
    """Decides which loads and stores can move whole vectors of `vec` elements along `axes` at every position of the
    loops `outer`. With `shiftable`, the first vector may begin before the row, so that vectors are aligned in memory.
    `hint` is 1 for streaming loads and stores.
    """
    layout = VectorLayout(axes, vec, hint)
    plain = [access for access in accesses(nest) if access.buffer and not access.computed]
    unit_step = [access for access in plain if access.linear(axes) == 1]
    aligned = [access for access in unit_step if access.aligned(outer, vec)]
    shifted = [access for access in unit_step if not access.aligned(outer, vec)]
    # Rows of odd length: follow a store if there is one, else the first load; weights stay element by element.
    if shiftable and shifted:
        rows = [access for access in shifted if any(step != 0 for step in access.along(outer))] or shifted
        shift = next((access for access in rows if access.buffer.startswith("out")), rows[0])
        alike = [access for access in unit_step if congruent(access, shift, outer, vec)]
        if len(alike) > len(aligned) or not any(access.along(outer) != [0] * len(outer) for access in aligned):
            layout.shift, aligned = shift, alike
    if layout.shift is None:
        layout.stepped = {id(a) for a in plain if a.stepped(axes, vec) and a.aligned(outer, vec)}
        layout.still = {id(a) for a in plain if stands_still(a, axes, vec)}
        layout.even = multiple_of(nest.size(axes), vec)
    layout.again = {id(access) for access in plain if 0 in [*access.along(outer), *access.along(axes)]}
    layout.vector = {id(access) for access in aligned} | layout.stepped
    return layout


def steady(nest: LoopNest, access: Access, axes: list[Axis], outer: list[Axis], vec: int) -> bool:
    """Whether a load at a computed position can load whole vectors, because the computed part of the position does not
    vary along `axes`.
    """
    computed = [term for _, term in access.terms] + ([] if access.guard is None else [access.guard])
    if not access.buffer or not computed or any(id(expr) in nest.varies for expr in computed):
        return False
    whole = access.aligned(outer, vec) and all(multiple_of(step, vec) for step, _ in access.terms)
    return access.linear(axes) == 1 and whole


def stands_still(access: Access, axes: list[Axis], vec: int) -> bool:
    """Whether a load has the same value for all elements of a vector, because it does not vary along the last axis and
    no vector crosses the end of that axis.
    """
    steps = access.along(axes)
    return len(axes) > 1 and steps[-1] == 0 and multiple_of(axes[-1].size, vec)


def index_type(size: Size) -> str:
    return "int" if isinstance(size, int) and size < SHORT else "int64_t"


class VectorWriter:
    """Writes the code for the vector that begins at position `e`. `slot` is "" or an index such as "[u]" into arrays of
    vectors."""

    def __init__(self, body: StatementWriter, layout: VectorLayout, slot: str = "") -> None:
        self.body = body
        self.unit: KernelSource = body.unit
        self.nest: LoopNest = body.nest
        self.layout = layout
        self.slot = slot
        self.ready: set[int] = set()

    def wanted(self, exprs: list[Expr]) -> list[Access]:
        """Returns the accesses (loads) that `exprs` need, each once, without loads at computed positions."""
        loaded = [self.nest.loads[id(expr)] for expr in exprs if isinstance(expr, Load) and expr.buffer]
        return [access for access in dict.fromkeys(loaded) if not access.computed]

    def declare(self, exprs: list[Expr], count: str = "") -> None:
        for access in self.wanted(exprs):
            self.unit.add(f"{element(access, 'cuda')} l_{access.name}{count}[{self.layout.vec}];")

    def load(self, exprs: list[Expr]) -> None:
        for access in self.wanted(exprs):
            self.load_one(access)

    def load_one(self, access: Access) -> None:
        layout, unit, to = self.layout, self.unit, f"l_{access.name}{self.slot}"
        full = "true" if layout.full else "false"
        steady = self._row(access)
        if id(access) in layout.vector:
            name = "ka_row_load_reversed" if layout.reverse else "ka_row_load"
            hint = 0 if id(access) in layout.again else layout.hint
            unit.add(f"{name}<{layout.vec}, {hint}, {full}>({to}, {steady}, e, {layout.limit});")
            return
        if id(access) in layout.still and not layout.reverse:
            source = f"({steady})[{unit.position(access, layout.axes, 'e') or '0'}]"
            value = source if layout.full else f"e < {layout.limit} ? {source} : {element(access, 'cuda')}()"
            unit.add(f"ka_fill({to}, {value});")
            return
        at = layout.position() if access.linear(layout.axes) == 1 else f"({layout.position()})"
        source = f"({steady})[{unit.position(access, layout.axes, at) or '0'}]"
        inside = layout.inside()
        value = f"{inside} ? {source} : {element(access, 'cuda')}()" if inside else source
        unit.add("#pragma unroll")
        unit.add(f"for (int k = 0; k < {layout.vec}; ++k) {to}[k] = {value};")

    def copies_whole(self, access: Access) -> bool:
        """Whether whole vectors of this access may be copied to shared memory directly, without a register."""
        return id(access) in self.layout.vector and not self.layout.reverse

    def copy_one(self, access: Access, to: str) -> None:
        """Writes code that copies the vector at `e` to shared memory, asynchronously if possible."""
        layout = self.layout
        full = "true" if layout.full else "false"
        self.unit.add(f"ka_row_copy<{layout.vec}, {full}>({to}, {self._row(access)}, e, {layout.limit});")

    def _row(self, access: Access) -> str:
        """Returns C text of a pointer p such that p + e is the address of the vector at position `e`."""
        address = joined(access.name, *(self.unit.position(access, *loop) for loop in self.layout.loops))
        if id(access) not in self.layout.stepped:
            return address
        return f"{address} + ({self.unit.position(access, self.layout.axes, 'e')}) - e"

    def load_steady(self, exprs: list[Expr]) -> None:
        """Writes those loads of `exprs` that read whole vectors at computed positions, because the computed part does
        not vary along the row. The code that computes this part must be written before."""
        layout, unit, nest = self.layout, self.unit, self.nest
        outer = [axis for axis in [*nest.outer, *nest.reduced] if axis not in layout.axes]
        for expr in exprs:
            access = nest.loads.get(id(expr))
            if access is None or id(access) in self.ready or not steady(nest, access, layout.axes, outer, layout.vec):
                continue
            self.ready.add(id(access))
            name, kind = f"l_{access.name}", element(access, "cuda")
            unit.add(f"{kind} {name}[{layout.vec}];")
            steps = [f"{unit.size(step)} * {self.body.name(term)}" for step, term in access.terms]
            full = "true" if layout.full else "false"
            address = joined(access.name, *steps)
            read = f"ka_row_load<{layout.vec}, {layout.hint}, {full}>({name}, {address}, e, {layout.limit});"
            if access.guard is None:
                unit.add(read)
                continue
            unit.add(f"if ({self.body.name(access.guard)}) {read}")
            unit.add("else")
            unit.add("#pragma unroll")
            unit.add(f"for (int k = 0; k < {layout.vec}; ++k) {name}[k] = {kind}();")

    def open(self) -> StatementWriter:
        """Begins the loop over the elements of the vector; returns the writer of the loop's body."""
        self.unit.add("#pragma unroll")
        self.unit.open(f"for (int k = 0; k < {self.layout.vec}; ++k)")
        self.unit.add_if_used("q", f"const {self.layout.index} q = {self.layout.position()};")
        return self.body.inner()

    def texts(self) -> dict[int, str]:
        """Returns the C text of every load at element k of the vector, by the `id` of its access."""
        texts = {}
        for access in dict.fromkeys(self.nest.loads.values()):
            if access.buffer and (not access.computed or id(access) in self.ready):
                slot = "" if access.computed else self.slot
                texts[id(access)] = f"ka_get(l_{access.name}{slot}[k])"
            else:
                loops = [*self.layout.loops, (self.layout.axes, "q")]
                position = joined(*(self.unit.position(access, *loop) for loop in loops))
                texts[id(access)] = self.unit.fetch(access, position, self.layout.inside())
        return texts

    def declare_stores(self, part: list[tuple[Access, Output]]) -> None:
        for access, _ in part:
            if id(access) in self.layout.vector:
                self.unit.add(f"{element(access, 'cuda')} s_{access.name}[{self.layout.vec}];")

    def put(self, inner: StatementWriter, part: list[tuple[Access, Output]]) -> None:
        """Writes the code inside the element loop that collects results in the vectors that `store` writes to memory,
        and that stores the results of other outputs one by one."""
        for access, output in part:
            if id(access) in self.layout.vector:
                self.unit.add(f"ka_put(s_{access.name}[k], {inner.name(output.expr)});")
                continue
            loops = [*self.layout.loops, (self.layout.axes, "q")]
            position = joined(*(self.unit.position(access, *loop) for loop in loops))
            inside = self.layout.inside()
            guard = f"if ({inside}) " if inside else ""
            self.unit.add(f"{guard}ka_put({access.name}[{position}], {inner.name(output.expr)});")

    def store(self, part: list[tuple[Access, Output]]) -> None:
        """Writes the code after the element loop that stores the vectors."""
        layout = self.layout
        for access, _ in part:
            if id(access) in layout.vector:
                name = "ka_row_store_reversed" if layout.reverse else "ka_row_store"
                full = "true" if layout.full else "false"
                steady = self._row(access)
                kind = f"{name}<{layout.vec}, {layout.hint}, {full}>"
                self.unit.add(f"{kind}({steady}, e, {layout.limit}, s_{access.name});")
