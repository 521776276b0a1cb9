"""Writes the `strip` neighbouring outputs of a thread as vectors. If rows of outputs do not begin aligned, the threads
of a warp first exchange outputs, so that neighbouring threads write neighbouring elements.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Axis, Load
from kernel_assistant.generator.loops.nest import Access, LoopNest
from kernel_assistant.generator.loops.windows_plan import WindowPlan
from kernel_assistant.generator.print.cuda.strip_reach import BANKS, WARP, WIDEST, store_vec
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, element, joined, unsigned
from kernel_assistant.records.graph import DTYPE_BYTES

Loops = list[tuple[list[Axis], str]]


class StripStores:
    """Writes code that stores the outputs of a thread's strip: `strip` neighbouring outputs from output `i` on, in a
    row of `length` outputs; with `beyond`, strips may end after the row.

    `block` is the number of threads of a block; 0 if the threads of a warp may be in several rows, so that they cannot
    exchange outputs.
    """

    def __init__(
        self, unit: KernelSource, nest: LoopNest, plan: WindowPlan, strip: int, length: int, beyond: bool, block: int
    ) -> None:
        self.unit, self.nest, self.plan = unit, nest, plan
        self.strip, self.length, self.block = strip, length, block
        self.stores = plan.stores
        #: Elements of a vector of an access along the row, by identity; turned: stores that are exchanged.
        self.vec = {id(access): store_vec(nest, access, strip) for access, _ in self.stores}
        self.turned = [access for access, _ in self.stores if block and self._is_short(access)]
        self.bytes = sum(self._room(access) * block // WARP * DTYPE_BYTES[access.dtype] for access in self.turned)
        body = [nest.loads[id(expr)] for expr in plan.body if isinstance(expr, Load) and expr.buffer]
        self.read: list[Access] = []
        for access in dict.fromkeys(body):
            if not access.computed and store_vec(nest, access, strip) > 1:
                self.read.append(access)
                self.vec[id(access)] = store_vec(nest, access, strip)
        self.inside = f"e < {length}" if beyond else ""

    def _is_short(self, access: Access) -> bool:
        """Whether alignment forces the vectors of an access to be shorter than 16 bytes and than the strip."""
        size = DTYPE_BYTES[access.dtype]
        return 0 < self.vec[id(access)] * size < min(WIDEST, self.strip * size)

    def _is_turned(self, access: Access) -> bool:
        return any(access is other for other in self.turned)

    def _room(self, access: Access) -> int:
        """Returns the number of elements of shared memory that a warp needs for `access`; 16 bytes stay unused after
        each line of banks."""
        size = DTYPE_BYTES[access.dtype]
        return WARP * self.strip * (BANKS + WIDEST) // BANKS if self.strip * size > WIDEST else WARP * self.strip

    def _slot(self, access: Access, index: str) -> str:
        """Returns C text of the address in shared memory of element number `index` of the warp's strips."""
        size = DTYPE_BYTES[access.dtype]
        if self.strip * size <= WIDEST:
            return f"own_{access.name} + {index}"
        return f"own_{access.name} + ({index} + ({index}) / {unsigned(BANKS // size)} * {unsigned(WIDEST // size)})"

    def declare(self) -> None:
        """Writes the declarations of the shared memory of each warp."""
        for access in self.turned:
            kind, name, room = element(access, "cuda"), access.name, self._room(access)
            count = room * self.block // WARP * DTYPE_BYTES[access.dtype]
            self.unit.add(f"__shared__ __align__({WIDEST}) unsigned char turn_{name}[{count}];")
            at = f"(threadIdx.x >> 5) * {room}"
            self.unit.add(f"{kind}* const own_{name} = reinterpret_cast<{kind}*>(turn_{name}) + {at};")

    def open(self, loops: Loops) -> None:
        """Writes the code before the loop over the outputs of a strip: it loads operands that the outputs need beside
        the windows, and declares arrays for the results.
        """
        unit, full = self.unit, "false" if self.inside else "true"
        for access in self.read:
            vec = self.vec[id(access)]
            unit.add(f"{element(access, 'cuda')} l_{access.name}[{self.strip // vec}][{vec}];")
            unit.add("#pragma unroll")
            unit.open(f"for (int c = 0; c < {self.strip // vec}; ++c)")
            row = joined(access.name, *(unit.position(access, *loop) for loop in loops))
            unit.add(f"ka_row_load<{vec}, 0, {full}>(l_{access.name}[c], {row}, i + c * {vec}, {self.length});")
            unit.close()
        for access, _ in self.stores:
            vec = self._piece(access)
            if vec:
                unit.add(f"{element(access, 'cuda')} s_{access.name}[{self.strip // vec}][{vec}];")

    def _piece(self, access: Access) -> int:
        """Returns the number of elements that are stored together, to memory or to shared memory."""
        if self._is_turned(access):
            return min(self.strip, WIDEST // DTYPE_BYTES[access.dtype])
        return self.vec[id(access)]

    def texts(self, loops: Loops) -> dict[int, str]:
        """Returns the C text of every load at output e = i + s, by the `id` of its access."""
        texts = {}
        for access in dict.fromkeys(self.nest.loads.values()):
            if any(access is other for other in self.read):
                vec = self.vec[id(access)]
                texts[id(access)] = f"ka_get(l_{access.name}[s / {vec}][s % {vec}])"
                continue
            position = joined(*(self.unit.position(access, *loop) for loop in [(self.nest.inner, "e"), *loops]))
            texts[id(access)] = self.unit.fetch(access, position, self.inside, always=True)
        return texts

    def put(self, inner: StatementWriter, loops: Loops) -> None:
        """Writes the code inside the loop that stores contiguous results in the declared arrays, and other results
        directly to memory.
        """
        for access, output in self.stores:
            vec, value = self._piece(access), inner.name(output.expr)
            if vec:
                self.unit.add(f"ka_put(s_{access.name}[s / {vec}][s % {vec}], {value});")
                continue
            position = joined(*(self.unit.position(access, *loop) for loop in [(self.nest.inner, "e"), *loops]))
            guard = f"if ({self.inside}) " if self.inside else ""
            self.unit.add(f"{guard}ka_put({access.name}[{position}], {value});")

    def close(self, loops: Loops) -> None:
        """Writes the code after the loop that stores the declared arrays to memory."""
        unit, full = self.unit, "false" if self.inside else "true"
        for access, _ in self.stores:
            vec = self._piece(access)
            row = joined(access.name, *(unit.position(access, *loop) for loop in loops))
            if self._is_turned(access):
                self._turn(access, row, vec)
            elif vec:
                unit.add("#pragma unroll")
                unit.open(f"for (int c = 0; c < {self.strip // vec}; ++c)")
                arguments = f"{row}, i + c * {vec}, {self.length}, s_{access.name}[c]"
                unit.add(f"ka_row_store<{vec}, 0, {full}>({arguments});")
                unit.close()

    def _turn(self, access: Access, row: str, vec: int) -> None:
        unit, name = self.unit, access.name
        unit.add("#pragma unroll")
        unit.open(f"for (int c = 0; c < {self.strip // vec}; ++c)")
        unit.add(f"const unsigned j = lane * {self.strip} + c * {vec};")
        unit.add(f"ka_store<{vec}, 0>({self._slot(access, 'j')}, s_{name}[c]);")
        unit.close()
        unit.add("__syncwarp();")
        unit.add("#pragma unroll")
        unit.open(f"for (int c = 0; c < {self.strip}; ++c)")
        unit.add("const unsigned j = c * 32 + lane;")
        unit.add(f"if (piece + (int)j < {self.length}) ({row})[piece + (int)j] = *({self._slot(access, 'j')});")
        unit.close()
        unit.add("__syncwarp();")
