"""The lines of a row kernel for both targets. The row is held, or every pass reads it again."""

from __future__ import annotations

import re

from kernel_assistant.generator.ir.expr import Const, Expr, Load, Op, Reduce
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant_training.teacher.nests.flow import Sweep, gate, is_row, levels, reaches, sweeps
from kernel_assistant_training.teacher.nests.row_reductions import RowReductions, counted, is_key
from kernel_assistant_training.teacher.text.expressions import below, stored
from kernel_assistant_training.teacher.text.lowering import FLOATS
from kernel_assistant_training.teacher.text.sizes import NoForm

#: The row of a thread, and the condition that it is the row's first thread; by threads a row.
_ROW = {
    "T": "const int64_t r = blockIdx.x;",
    "32": "const int64_t r = blockIdx.x * (T / 32) + threadIdx.x / 32;",
    "1": "const int64_t r = blockIdx.x * (int64_t)T + threadIdx.x;",
}
_FIRST = {"T": "if (threadIdx.x == 0) ", "32": "if (threadIdx.x % 32 == 0) ", "1": ""}
#: Functions that the CPU rather computes again than keeps the result of in a buffer.
_CHEAP = ("ka_abs", "ka_square", "ka_max", "ka_min", "ka_relu", "ka_clamp", "ka_leaky_relu", "ka_round")


class RowText(RowReductions):
    """Writes the kernel of one loop nest whose reductions run along rows."""

    @property
    def needs_rows(self) -> bool:
        return not self._cuda or self.threads != "T"

    def body(self) -> list[str]:
        """The lines of the loop body. Raises NoForm if the nest cannot be written as rows."""
        self._check()
        self._begin()
        done: set[int] = set()
        for place, sweep in enumerate(self._sweeps):
            if sweep.reduce is not None and id(sweep.reduce) in done:
                continue
            if self._may_hold:
                self._hold(self._sweeps[place:], done)
            if sweep.reduce is not None:
                done |= self._reduce(sweep.reduce)
            else:
                self._store(sweep)
        self._store_scalars()
        first = [self._alias] if self._alias else []
        lines = [*self._first, *self._with_places()]
        if self._cuda:
            return [*first, *lines]
        head = f"ka::rows(a->rows, {self._columns}, [=](int64_t r) {{"
        return [*first, head, *("  " + line.replace("\n", "\n  ") for line in lines), "});"]

    def _with_places(self) -> list[str]:
        """The lines of the body, with a variable for each division of the row index that occurs more than once."""
        text = "\n".join(self._lines)
        named: list[str] = []
        for offset in sorted(self._offsets, key=len, reverse=True):
            # Not if it is only the beginning of another offset: "… + r % D1 * -1".
            whole = re.compile(re.escape(offset) + r"(?! [*/%])")
            if len(whole.findall(text)) > 1 and ("/" in offset or "%" in offset):
                name = f"i{len(named) or ''}"
                named.append(f"const int64_t {name} = {offset};")
                text = whole.sub(name, text)
        return [*named, *text.split("\n")] if named else self._lines

    def _check(self) -> None:
        for access in self._lowered.accesses:
            if access.computed or access.dtype not in (*FLOATS, "i64", "i32", "b1", "u8"):
                raise NoForm(f"a row of {access.dtype}")
        for access, _ in self._nest.stores:
            if any(axis not in access.index and self._sizes.value(axis.size) > 1 for axis in self._nest.outer):
                raise NoForm("a result that several rows would write")
        for expr in self._nest.program.exprs:
            if isinstance(expr, Reduce) and expr.ctype not in ("float", "bool") and not (is_key(expr) or counted(expr)):
                raise NoForm(f"a reduction of {expr.ctype}")
            if isinstance(expr, Load) and id(expr) in self._nest.varies and expr.ctype == "int64_t" and expr.buffer:
                raise NoForm("a row of integers")

    def _begin(self) -> None:
        if not self._cuda:
            return
        if self.threads != "T" or self._nest.outer:
            self._first.append(_ROW[self.threads])
        if self.needs_rows:
            self._first.append("if (r >= a.rows) return;")

    def _hold(self, left: list[Sweep], done: set[int]) -> None:
        """Computes once what several of the remaining passes need."""
        wanted = [sweep for sweep in left if sweep.reduce is None or id(sweep.reduce) not in done]
        if self._held is not None and sum(reaches(self._nest, sweep.of, self._held) for sweep in wanted) < 2:
            return
        found = gate(self._nest, [sweep.of for sweep in wanted], done, self._held)
        if self._held is None:
            self._hold_first(found, wanted)
        elif found is not None and (self._cuda or _dear(found)):
            self._map(found)

    def _hold_first(self, found: Expr | None, wanted: list[Sweep]) -> None:
        if not self._cuda:
            plainly = isinstance(found, Load) and self._nest.loads[id(found)].linear(self._nest.reduced) == 1
            if found is not None and not plainly and len(wanted) > 1:
                self._map(found)
            return
        inside = below([found] if found is not None else [wanted[0].of])
        loads = [one for one in inside if isinstance(one, Load) and self._whole(one)]
        if not loads:
            raise NoForm("no row to hold")
        order = self._lowered.buffers()
        first = min(loads, key=lambda load: order.index(load.buffer))
        access = self._nest.loads[id(first)]
        self._lines.append(f"ka::row_of<{self.threads}, V, {self._columns}> x;")
        self._lines.append(f"x.load({self._operand(access)}, {self._columns});")
        self._keep(first)
        if found is not None and found is not first:
            self._map(found)

    def _map(self, found: Expr) -> None:
        if self._cuda:
            function, operands = self._function(found)
            self._lines.append(f"x.map({', '.join([function, *operands])});")
        else:
            function, operands = self._function(found)
            self._lines += [f"float v[{self._columns}];"] if self._held is None else []
            self._lines.append(f"ka::map_row({self._columns}, {function}, v, {', '.join(operands)});")
        self._keep(found)

    def _keep(self, expr: Expr) -> None:
        if self._held is not None:
            self._names.pop(id(self._held), None)
        self._held, self._names[id(expr)] = expr, "v"
        if isinstance(expr, Load):
            access = self._nest.loads[id(expr)]
            self._names.update({key: "v" for key, one in self._nest.loads.items() if one is access})

    def _whole(self, load: Load) -> bool:
        return is_row(self._nest, load) and load.ctype == "float" and self._linear(load)

    def _linear(self, load: Load) -> bool:
        return self._nest.loads[id(load)].linear(self._nest.reduced) == 1 or self.threads == "1"

    def _store(self, sweep: Sweep) -> None:
        assert sweep.store is not None
        access, _ = sweep.store
        function, operands = self._function(sweep.of)
        to = self._operand(access)
        if to.startswith("ka::steps"):
            raise NoForm("a result in steps")
        if self._cuda and self._held is not None:
            identity = function == "[](float v) { return v; }"
            self._lines.append(f"x.store({', '.join([to] if identity else [to, function, *operands])});")
            return
        kind = f"<{self.threads}, V>" if self._cuda else ""
        self._lines.append(f"ka::map_row{kind}({', '.join([self._columns, function, to, *operands])});")

    def _store_scalars(self) -> None:
        along = {id(sweep.store[0]) for sweep in self._sweeps if sweep.store is not None}
        for access, output in self._nest.stores:
            if id(access) in along:
                continue
            value = stored(output.expr, access.dtype)
            name = self._writer.constant(value) if isinstance(value, Const) else self._scalar(value)
            at = self._offset(access) or "0"
            first = _FIRST[self.threads] if self._cuda else ""
            self._lines.append(f"{first}ka_put({self._arguments}{access.buffer}[{at}], {name});")


def reads_once(nest: LoopNest) -> bool:
    return len(sweeps(nest, levels(nest))) == 1


def _dear(expr: Expr) -> bool:
    """Whether the expression has a function that is expensive to compute again."""
    return any(isinstance(one, Op) and "ka_" in one.text and not one.text.startswith(_CHEAP) for one in below([expr]))
