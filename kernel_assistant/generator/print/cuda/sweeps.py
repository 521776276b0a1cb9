"""Writes one pass over a row, read from memory or from the copy in shared memory that the first pass makes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Load
from kernel_assistant.generator.loops.nest import Access, LoopNest
from kernel_assistant.generator.loops.passes import Pass, Passes
from kernel_assistant.generator.print.cuda.common import PassReductions
from kernel_assistant.generator.print.cuda.group import VectorLayout, VectorWriter
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, element
from kernel_assistant.records.graph import DTYPE_BYTES

#: A block has 227 KiB, the reductions take a little of it.
SHARED_LIMIT = 226 * 1024
#: Bytes of an asynchronous copy.
COPY_BYTES = 16


@dataclass(slots=True)
class RowCopies:
    """The copies of a row in the shared memory of a block: `elements` elements for each access. `staged`: they are made
    asynchronously, before the first pass.
    """

    accesses: list[Access] = field(default_factory=list)
    elements: int = 0
    staged: bool = False

    @property
    def shared(self) -> int:
        """The bytes of shared memory for the copies."""
        return sum(self._bytes(access) for access in self.accesses)

    def _bytes(self, access: Access) -> int:
        return -(-self.elements * DTYPE_BYTES[access.dtype] // COPY_BYTES) * COPY_BYTES

    def declare(self, unit: KernelSource, vec: int) -> None:
        """Declares, for each access, a pointer to the position in shared memory to which this thread's first vector is
        copied.
        """
        if self.accesses:
            unit.add("extern __shared__ uint4 ka_dynamic[];")
        offset = 0
        for access in self.accesses:
            kind = element(access, "cuda")
            base = f"reinterpret_cast<{kind}*>(reinterpret_cast<char*>(ka_dynamic) + {offset})"
            unit.add(f"{kind}* c_{access.name} = {base} + threadIdx.x * {vec};")
            offset += self._bytes(access)


def read_again(nest: LoopNest, plan: Passes) -> list[Access]:
    """Returns the loads that both the first pass over a row and later passes need."""
    used = [{id(nest.loads[id(e)]) for e in part.body if isinstance(e, Load)} for part in plan.passes]
    again = set().union(*used[1:]) & used[0] if len(used) > 1 else set()
    plain = [access for access in dict.fromkeys(nest.loads.values()) if access.buffer and not access.computed]
    return [access for access in plain if id(access) in again]


def plan_copies(nest: LoopNest, plan: Passes, elements: int, staged: bool) -> RowCopies:
    """Plans copies in shared memory, of `elements` elements each, for the loads that both the first pass and later ones
    need. Raises Unsupported if there is no such load, or not enough shared memory.
    """
    copies = RowCopies(read_again(nest, plan), elements, staged)
    if not copies.accesses or copies.shared > SHARED_LIMIT:
        raise Unsupported(f"{copies.shared} bytes of shared memory for a row")
    return copies


@dataclass(slots=True)
class Sweep:
    """How a pass runs over a row: each of `threads` threads of a block processes `unroll` vectors at a time, which are
    `step` elements apart.

    The first `held` vectors of a thread stay in registers and are not copied to shared memory.
    """

    layout: VectorLayout
    threads: int
    step: int
    unroll: int
    copies: RowCopies = field(default_factory=RowCopies)
    held: int = 0

    def declare(self, unit: KernelSource) -> None:
        """Declares the variables that live longer than one pass: copies in shared memory, vectors in registers."""
        self.copies.declare(unit, self.layout.vec)
        for access in self.copies.accesses if self.held else []:
            unit.add(f"{element(access, 'cuda')} l_{access.name}[{self.held}][{self.layout.vec}];")

    def write(self, body: StatementWriter, part: Pass, reducing: PassReductions, first: bool) -> None:
        """Writes one pass, which loads vectors and processes them. The first pass makes the copies that later ones
        read."""
        if self.held and first:
            self._hold(body)
        if first and self.copies.staged:
            self._stage(body, part)
            first = False
        if self.held:
            self._from_registers(body, part, reducing)
        self._swept(body, part, reducing, first)

    def _hold(self, body: StatementWriter) -> None:
        """Writes the loads of all vectors that stay in registers; all loads are in flight at once."""
        group = VectorWriter(body, self.layout, "[n]")
        self._each_item(body.unit)
        for access in self.copies.accesses:
            group.load_one(access)
        body.unit.close()

    def _from_registers(self, body: StatementWriter, part: Pass, reducing: PassReductions) -> None:
        unit, layout = body.unit, self.layout
        group = VectorWriter(body, layout, "[n]")
        others = [access for access in group.wanted(part.body) if not self._copied(access)]
        unit.open("")
        for access in others:
            unit.add(f"{element(access, 'cuda')} l_{access.name}[{self.held}][{layout.vec}];")
        self._each_item(unit)
        for access in others:
            group.load_one(access)
        self._compute(body, part, reducing, group)
        unit.close()
        unit.close()

    def _each_item(self, unit: KernelSource) -> None:
        unit.add("#pragma unroll")
        unit.open(f"for (int n = 0; n < {self.held}; ++n)")
        unit.add_if_used("e", f"const {self.layout.index} e = first + n * {self.step};")

    def _copied(self, access: Access) -> bool:
        return any(access is other for other in self.copies.accesses)

    def _swept(self, body: StatementWriter, part: Pass, reducing: PassReductions, first: bool) -> None:
        unit, layout = body.unit, self.layout
        self._open(unit)
        if self.copies.accesses or layout.full or layout.vec == 1:
            self._batch(body, part, reducing, layout, first)
        else:
            # Most batches are whole, and ask no element where the row ends.
            whole = replace(layout, full=True)
            above = " && base >= 0" if layout.shift is not None else ""
            unit.open(f"if (base + {(self.unroll - 1) * self.step + layout.vec} <= {layout.limit}{above})")
            self._batch(body, part, reducing, whole, first)
            unit.close()
            unit.open("else")
            if layout.even:
                self._rest(body, part, reducing, whole)
            else:
                self._batch(body, part, reducing, layout, first)
            unit.close()
        unit.close()

    def _batch(
        self, body: StatementWriter, part: Pass, reducing: PassReductions, layout: VectorLayout, first: bool
    ) -> None:
        """Writes code that processes `unroll` vectors from `base` on: first all loads, then the computation."""
        unit, group = body.unit, VectorWriter(body, layout, "[u]")
        group.declare(part.body, f"[{self.unroll}]")
        self._vectors(unit)
        for access in group.wanted(part.body):
            copied = self._copied(access)
            if copied and not first:
                unit.add(f"ka_load<{layout.vec}, 0>(l_{access.name}[u], {self._place(access)});")
                continue
            group.load_one(access)
            if copied:
                unit.add(f"ka_store<{layout.vec}, 0>({self._place(access)}, l_{access.name}[u]);")
        unit.close()
        self._vectors(unit)
        self._compute(body, part, reducing, group)
        unit.close()

    def _rest(self, body: StatementWriter, part: Pass, reducing: PassReductions, layout: VectorLayout) -> None:
        """Writes a loop that processes the remaining vectors from `base` on, one by one, which takes few registers and
        little code."""
        unit, group = body.unit, VectorWriter(body, layout)
        unit.add("#pragma unroll 1")
        unit.open(f"for ({layout.index} e = base; e < {layout.limit}; e += {self.step})")
        group.declare(part.body)
        group.load(part.body)
        self._compute(body, part, reducing, group)
        unit.close()

    def _compute(self, body: StatementWriter, part: Pass, reducing: PassReductions, group: VectorWriter) -> None:
        """Writes the computation for the vector at `e`, which is loaded already."""
        unit, layout = body.unit, group.layout
        group.declare_stores(part.stores)
        reducing.before(unit, layout.vec)
        inner = group.open()
        inner.write(part.body, group.texts())
        reducing.element(unit, inner, layout.inside())
        group.put(inner, part.stores)
        unit.close()
        reducing.after(unit)
        group.store(part.stores)

    def _stage(self, body: StatementWriter, part: Pass) -> None:
        """Writes code that makes all copies before the first pass. A thread later reads only elements that it copied
        itself."""
        unit, layout = body.unit, self.layout
        group = VectorWriter(body, layout, "[u]")
        self._open(unit)
        slow = [access for access in self.copies.accesses if not group.copies_whole(access)]
        for access in slow:
            unit.add(f"{element(access, 'cuda')} l_{access.name}[{self.unroll}][{layout.vec}];")
        self._vectors(unit)
        for access in self.copies.accesses:
            if any(access is other for other in slow):
                group.load_one(access)
                unit.add(f"ka_store<{layout.vec}, 0>({self._place(access)}, l_{access.name}[u]);")
            else:
                group.copy_one(access, self._place(access))
        unit.close()
        unit.close()
        unit.add("ka_copies_wait();")

    def _place(self, access: Access) -> str:
        return f"c_{access.name} + (slot + u) * {self.threads * self.layout.vec}"

    def _open(self, unit: KernelSource) -> None:
        index, limit, reach = self.layout.index, self.layout.limit, self.step * self.unroll
        copied = bool(self.copies.accesses)
        begin = f"{index} base = first{f' + {self.held * self.step}' if self.held else ''}"
        begin += ", slot = 0" if copied else ""
        unit.open(f"for ({begin}; base < {limit}; base += {reach}{f', slot += {self.unroll}' if copied else ''})")

    def _vectors(self, unit: KernelSource) -> None:
        unit.add("#pragma unroll")
        unit.open(f"for (int u = 0; u < {self.unroll}; ++u)")
        unit.add_if_used("e", f"const {self.layout.index} e = base + u * {self.step};")
