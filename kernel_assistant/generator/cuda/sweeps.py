"""One pass over a row from memory, or from the copy of it that the first pass leaves in shared memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernel_assistant.generator.cuda.common import Reducing
from kernel_assistant.generator.cuda.group import Group, Layout
from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.expr import Load
from kernel_assistant.generator.nest import Access, Nest
from kernel_assistant.generator.passes import Pass, Passes
from kernel_assistant.generator.render import Body, Unit, element
from kernel_assistant.records.graph import DTYPE_BYTES

#: A block has 227 KiB, the reductions take a little of it.
SHARED_LIMIT = 226 * 1024
#: Bytes of an asynchronous copy.
COPY_BYTES = 16


@dataclass(slots=True)
class Copies:
    """What a block copies of a row: `elements` of each access. `staged`: asynchronously, before the first pass."""

    accesses: list[Access] = field(default_factory=list)
    elements: int = 0
    staged: bool = False

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return sum(self._bytes(access) for access in self.accesses)

    def _bytes(self, access: Access) -> int:
        return -(-self.elements * DTYPE_BYTES[access.dtype] // COPY_BYTES) * COPY_BYTES

    def declare(self, unit: Unit, vec: int) -> None:
        """A pointer per access to where this thread's first vector is copied."""
        if self.accesses:
            unit.add("extern __shared__ uint4 ka_dynamic[];")
        offset = 0
        for access in self.accesses:
            kind = element(access, "cuda")
            base = f"reinterpret_cast<{kind}*>(reinterpret_cast<char*>(ka_dynamic) + {offset})"
            unit.add(f"{kind}* c_{access.name} = {base} + threadIdx.x * {vec};")
            offset += self._bytes(access)


def read_again(nest: Nest, plan: Passes) -> list[Access]:
    """What the first pass and later ones read."""
    used = [{id(nest.loads[id(e)]) for e in part.body if isinstance(e, Load)} for part in plan.passes]
    again = set().union(*used[1:]) & used[0] if len(used) > 1 else set()
    plain = [access for access in dict.fromkeys(nest.loads.values()) if access.buffer and not access.computed]
    return [access for access in plain if id(access) in again]


def plan_copies(nest: Nest, plan: Passes, elements: int, staged: bool) -> Copies:
    """Copies of what is read again. Raises Unsupported where there is nothing, or no room for it."""
    copies = Copies(read_again(nest, plan), elements, staged)
    if not copies.accesses or copies.shared > SHARED_LIMIT:
        raise Unsupported(f"{copies.shared} bytes of shared memory for a row")
    return copies


@dataclass(slots=True)
class Sweep:
    """How a pass runs over a row: `threads` of a block side by side, `unroll` vectors of a thread, `step` apart."""

    layout: Layout
    threads: int
    step: int
    unroll: int
    copies: Copies = field(default_factory=Copies)

    def write(self, body: Body, part: Pass, reducing: Reducing, first: bool) -> None:
        """One pass; vectors are loaded, then computed. The first one makes the copies that later ones read."""
        if first and self.copies.staged:
            self._stage(body, part)
            first = False
        unit, layout = body.unit, self.layout
        group = Group(body, layout, "[u]")
        self._open(unit)
        group.declare(part.body, f"[{self.unroll}]")
        self._vectors(unit)
        for access in group.wanted(part.body):
            copied = any(access is other for other in self.copies.accesses)
            if copied and not first:
                unit.add(f"ka_load<{layout.vec}, 0>(l_{access.name}[u], {self._place(access)});")
                continue
            group.load_one(access)
            if copied:
                unit.add(f"ka_store<{layout.vec}, 0>({self._place(access)}, l_{access.name}[u]);")
        unit.close()
        self._vectors(unit)
        group.declare_stores(part.stores)
        reducing.before(unit, layout.vec)
        inner = group.open()
        inner.write(part.body, group.texts())
        reducing.element(unit, inner, layout.inside())
        group.put(inner, part.stores)
        unit.close()
        reducing.after(unit)
        group.store(part.stores)
        unit.close()
        unit.close()

    def _stage(self, body: Body, part: Pass) -> None:
        """All copies at once; a thread reads again only what it copied itself."""
        unit, layout = body.unit, self.layout
        group = Group(body, layout, "[u]")
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

    def _open(self, unit: Unit) -> None:
        index, limit, reach = self.layout.index, self.layout.limit, self.step * self.unroll
        copied = bool(self.copies.accesses)
        begin = f"{index} base = first{', slot = 0' if copied else ''}"
        unit.open(f"for ({begin}; base < {limit}; base += {reach}{f', slot += {self.unroll}' if copied else ''})")

    def _vectors(self, unit: Unit) -> None:
        unit.add("#pragma unroll")
        unit.open(f"for (int u = 0; u < {self.unroll}; ++u)")
        unit.add_if_used("e", f"const {self.layout.index} e = base + u * {self.step};")
