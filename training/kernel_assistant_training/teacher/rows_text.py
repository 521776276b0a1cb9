"""The lines of a row kernel, for both targets: the row is held, or read again by every sweep."""

from __future__ import annotations

from kernel_assistant.generator.expr import Const, Expr, Load, Op, Reduce, children
from kernel_assistant.generator.nest import Access, Nest
from kernel_assistant.generator.sizes import product
from kernel_assistant_training.teacher.expressions import Writer, below, stored
from kernel_assistant_training.teacher.flow import Sweep, gate, is_row, levels, reaches, sweeps
from kernel_assistant_training.teacher.lowering import FLOATS, Lowered
from kernel_assistant_training.teacher.places import merged, plain, row_offset
from kernel_assistant_training.teacher.sizes import NoForm

OPERATORS = {"sum": "add", "prod": "times", "max": "most", "min": "least", "any": "most", "all": "least"}
PICK = "({1} == {2} ? {0} : 0)"
#: Which row a thread has, and whether it is the first that has it.
_ROW = {
    "T": "const int64_t r = blockIdx.x;",
    "32": "const int64_t r = blockIdx.x * (T / 32) + threadIdx.x / 32;",
    "1": "const int64_t r = blockIdx.x * (int64_t)T + threadIdx.x;",
}
_FIRST = {"T": "if (threadIdx.x == 0) ", "32": "if (threadIdx.x % 32 == 0) ", "1": ""}
#: What is dear enough for the CPU to keep in a buffer rather than to compute again.
_CHEAP = ("ka_abs", "ka_square", "ka_max", "ka_min", "ka_relu", "ka_clamp", "ka_leaky_relu", "ka_round")


class RowText:
    """Writes one nest of rows. `threads` have a row on CUDA: a block ("T"), a warp ("32") or each one its own ("1").
    `held` there: in their registers; on the CPU: in a buffer where that saves work."""

    def __init__(self, lowered: Lowered, *, held: bool, threads: str = "T") -> None:
        self._lowered, self._nest, self._sizes = lowered, lowered.nest, lowered.sizes
        self._cuda, self.threads = lowered.target == "cuda", threads
        self._writer = Writer(lowered)
        self._sweeps = sweeps(self._nest, levels(self._nest))
        self._may_hold = held and len(self._sweeps) > 1
        self._arguments = "a." if self._cuda else "a->"
        columns = self._nest.size(self._nest.reduced)
        self._alias = self._sizes.alias(columns, "n")
        self._columns = self._sizes.code(columns)
        #: Names of everything that has one, outside of the lambdas, and the expression that is held.
        self._names: dict[int, str] = {}
        self._held: Expr | None = None
        #: Members of structs, which get a name when they are asked for.
        self._left: dict[int, str] = {}
        self._scalars = 0
        self._lines: list[str] = []
        self._first: list[str] = []
        self._offsets: dict[str, None] = {}
        self.includes = dict.fromkeys(["ka/rows.cuh" if self._cuda else "ka/rows.h"])

    @property
    def needs_rows(self) -> bool:
        return not self._cuda or self.threads != "T"

    def body(self) -> list[str]:
        """Raises NoForm."""
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
        """The lines, with names for what divides the row's number more than once."""
        text = "\n".join(self._lines)
        named: list[str] = []
        for offset in sorted(self._offsets, key=len, reverse=True):
            if text.count(offset) > 1 and ("/" in offset or "%" in offset):
                name = f"i{len(named) or ''}"
                named.append(f"const int64_t {name} = {offset};")
                text = text.replace(offset, name)
        return [*named, *text.split("\n")] if named else self._lines

    def _check(self) -> None:
        for access in self._lowered.accesses:
            if access.computed or access.dtype not in (*FLOATS, "i64", "i32", "b1", "u8"):
                raise NoForm(f"a row of {access.dtype}")
        for expr in self._nest.program.exprs:
            if (
                isinstance(expr, Reduce)
                and expr.ctype not in ("float", "bool")
                and not (_is_key(expr) or counted(expr))
            ):
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

    # ---- What is held.

    def _hold(self, left: list[Sweep], done: set[int]) -> None:
        """Compute once what the sweeps that are left need more than once."""
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
        self._lines.append(f"ka::row<{self.threads}, V, I> x;")
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

    # ---- Lambdas and their operands.

    def _pointer(self, access: Access) -> str:
        offset = self._offset(plain(access))
        base = f"{self._arguments}{access.buffer}"
        return f"{base} + {offset}" if offset else base

    def _offset(self, access: Access) -> str:
        offset = row_offset(access, self._nest.outer, self._sizes)
        self._offsets[offset] = None
        return offset

    def _operand(self, access: Access) -> str:
        """A pointer to the row's first element, or to one element for each of its steps."""
        pointer = self._pointer(access)
        loops = merged(access, self._nest.reduced)
        moving = [number for number, (_, step) in enumerate(loops) if step != 0]
        if len(loops) == 1 and moving == [0]:
            return pointer if loops[0][1] == 1 else f"ka::down({pointer}, {self._sizes.code(loops[0][1])})"
        if moving != [0] or loops[0][1] != 1:
            raise NoForm("an operand with gaps")
        return f"ka::steps({pointer}, {self._sizes.code(product([size for size, _ in loops[1:]]))})"

    def _function(self, expr: Expr) -> tuple[str, list[str]]:
        """A lambda for the value along the row, and its operands; on CUDA what is held comes first, and is none."""
        used: dict[int, tuple[Access, Load]] = {}
        names = dict(self._names)
        scalars, reads_held = False, False
        for one in below([expr], [key for key, name in self._names.items() if name != "v"]):
            if names.get(id(one)) == "v":
                reads_held = True
        for one in self._edge(expr):
            if names.get(id(one)) == "v":
                continue
            if id(one) not in self._nest.varies:
                names[id(one)] = self._scalar(one)
                scalars = True
            elif isinstance(one, Load):
                access = plain(self._nest.loads[id(one)])
                used.setdefault(id(access), (access, one))
                names[id(one)] = access.name
            else:
                raise NoForm(f"{type(one).__name__} along a row")
        names.update(self._names)
        parameters = [(load.ctype, access.name) for access, load in used.values()]
        operands = [self._operand(access) for access, _ in used.values()]
        if self._held is not None and (self._cuda or reads_held):
            parameters.insert(0, ("float", "v" if reads_held else ""))
            operands = operands if self._cuda else ["v", *operands]
        if not parameters:
            raise NoForm("a row of equal values")
        return self._writer.lambda_(expr, names, parameters, scalars), operands

    def _edge(self, expr: Expr) -> list[Expr]:
        """Where a lambda ends: what is held, loads along the row, and what is the same for the whole row."""
        found: list[Expr] = []
        stack, seen = [expr], set()
        while stack:
            one = stack.pop()
            if id(one) in seen or isinstance(one, Const):
                continue
            seen.add(id(one))
            if self._names.get(id(one)) == "v" or id(one) not in self._nest.varies or isinstance(one, Load | Reduce):
                found.append(one)
            else:
                stack.extend(children(one)[::-1])
        return found

    # ---- What is one number for the row.

    def _scalar(self, expr: Expr) -> str:
        """Its name, after the lines that compute it."""
        if id(expr) not in self._names:
            self._name_loads(expr)
        if id(expr) not in self._names:
            lines, names = self._shared(expr)
            self._lines += lines
            self._define(expr, expr.ctype, self._writer.text(expr, names))
        return self._names[id(expr)]

    def _shared(self, expr: Expr) -> tuple[list[str], dict[int, str]]:
        lines, names = self._writer.named(expr, self._names)
        if not lines:
            return lines, names
        # Names of lambdas are free in the scope of the row only once.
        for one in below([expr], self._names):
            if id(one) in names and id(one) not in self._names and one is not expr:
                self._scalar(one)
        return [], self._names

    def _name_loads(self, expr: Expr) -> None:
        """Lines for the loads below, and for what a sweep left in a struct."""
        stack = [expr]
        while stack:
            one = stack.pop()
            if id(one) in self._names:
                continue
            if id(one) in self._left:
                self._define(one, one.ctype, self._left[id(one)])
            elif isinstance(one, Load):
                self._names[id(one)] = self._load(one)
            elif isinstance(one, Reduce):
                raise NoForm("a reduction behind what needs it")
            else:
                stack.extend(children(one)[::-1])

    def _load(self, load: Load) -> str:
        access = plain(self._nest.loads[id(load)])
        if access.name not in self._names.values():
            at = self._offset(access) or "0"
            pointer = f"{self._arguments}{access.buffer}[{at}]"
            self._lines.append(f"const {load.ctype} {access.name} = ka_get({pointer});")
        return access.name

    def _define(self, expr: Expr, ctype: str, text: str) -> None:
        self._names[id(expr)] = f"s{self._scalars}"
        self._lines.append(f"const {ctype} s{self._scalars} = {text};")
        self._scalars += 1

    # ---- Reductions.

    def _reduce(self, reduce: Reduce) -> set[int]:
        """Lines for a reduction, or for two that one sweep gives; which they were."""
        special = self._moments(reduce) or self._online(reduce)
        if special:
            return special
        if _is_key(reduce):
            self._place(reduce)
        elif isinstance(reduce.arg, Op) and reduce.arg.text == PICK and _is_position(reduce.arg.args[1]):
            self._pick(reduce, reduce.arg)
        else:
            function, operands = self._function(counted(reduce) or reduce.arg)
            self._define(reduce, reduce.ctype, self._fold(OPERATORS[reduce.kind], function, operands))
        return {id(reduce)}

    def _fold(self, operator: str, function: str, operands: list[str]) -> str:
        if self._cuda and self._held is not None:
            if function == "[](float v) { return v; }" and operator in ("add", "most", "least"):
                return {"add": "x.sum()", "most": "x.max()", "least": "x.min()"}[operator]
            return f"x.fold<ka::{operator}>({', '.join([function, *operands])})"
        kind = f"{self.threads}, V, ka::{operator}" if self._cuda else f"ka::{operator}"
        return f"ka::fold_row<{kind}>({', '.join([self._columns, function, *operands])})"

    def _moments(self, first: Reduce) -> set[int]:
        """A sum and the squares around its mean."""
        for other in self._nest.reduces:
            joint = other.joint
            if joint is None or joint[0] != "m2" or joint[2] is not first:
                continue
            name = self._new("m")
            function, operands = self._function(joint[1])
            if self._cuda and self._held is not None:
                if function != "[](float v) { return v; }":
                    return set()
                call = "x.moments()"
            else:
                kind = f"<{self.threads}, V>" if self._cuda else ""
                bare = len(operands) == 1 and _identity(function)
                call = f"ka::row_moments{kind}({', '.join([self._columns, *([] if bare else [function]), *operands])})"
            self._lines.append(f"const auto {name} = {call};")
            mean = [
                one for one in self._nest.program.exprs if isinstance(one, Op) and one.args and one.args[0] is first
            ]
            if len(mean) == 1 and mean[0].text == "{0} / {1}":
                self._left[id(mean[0])] = f"{name}.mean"
            else:
                self._left[id(first)] = f"{name}.mean * {self._columns}"
            self._left[id(other)] = f"{name}.m2"
            return {id(first), id(other)}
        return set()

    def _online(self, top: Reduce) -> set[int]:
        """A maximum and the sum of the exponentials below it, where the row is not held."""
        if not self._cuda or self._held is not None:
            return set()
        for other in self._nest.reduces:
            joint = other.joint
            if joint is None or joint[0] != "sumexp" or joint[2] is not top:
                continue
            name = self._new("m")
            function, operands = self._function(joint[1])
            self.includes["ka/softmax.cuh"] = None
            arguments = ", ".join([self._columns, function, *operands])
            self._lines.append(f"const auto {name} = ka::online_row<{self.threads}, V>({arguments});")
            self._left.update({id(top): f"{name}.top", id(other): f"{name}.total"})
            return {id(top), id(other)}
        return set()

    def _new(self, letter: str) -> str:
        count = sum(f"const auto {letter}" in line for line in self._lines)
        return f"{letter}{count or ''}"

    def _place(self, reduce: Reduce) -> None:
        """argmax: the key's maximum is used for its place only."""
        assert isinstance(reduce.arg, Op)
        place = [one for one in self._nest.program.exprs if isinstance(one, Op) and one.args == (reduce,)]
        if len(place) != 1 or place[0].text != "ka_key_place({0})" or not _is_position(reduce.arg.args[1]):
            raise NoForm("a key")
        if self._nest.loads[id(reduce.arg.args[1])].linear(self._nest.reduced) != 1:
            raise NoForm("a position that is not the column")
        function, operands = self._function(reduce.arg.args[0])
        if self._cuda and self._held is not None and not operands:
            text = f"x.place({function})"
        elif self._cuda and self._held is not None:
            raise NoForm("a place of held rows with operands")
        else:
            kind = f"<{self.threads}, V>" if self._cuda else ""
            text = f"ka::place_row{kind}({', '.join([self._columns, function, *operands])})"
        self._define(place[0], "int64_t", text)

    def _pick(self, reduce: Reduce, arg: Op) -> None:
        """The value at one column, which is read directly."""
        target = self._scalar(arg.args[2])
        names = {key: name for key, name in self._names.items() if name != "v"}
        for one in below([arg.args[0]], names):
            if isinstance(one, Load) and id(one) in self._nest.varies:
                access = plain(self._nest.loads[id(one)])
                step = access.linear(self._nest.reduced)
                if step is None:
                    raise NoForm("a pick across steps")
                offset = self._offset(access)
                along = target if step == 1 else f"{target} * {self._sizes.factor(step)}"
                at = f"{offset} + {along}" if offset else along
                names[id(one)] = f"ka_get({self._arguments}{access.buffer}[{at}])"
            elif isinstance(one, Load | Reduce):
                raise NoForm("a pick of what is one number")
        value = self._writer.text(arg.args[0], names)
        inside = f"{target} >= 0 && {target} < {self._columns}"
        self._define(reduce, reduce.ctype, f"{inside} ? {value} : 0.0f")

    # ---- Stores.

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


def reads_once(nest: Nest) -> bool:
    return len(sweeps(nest, levels(nest))) == 1


def _identity(function: str) -> bool:
    name = function.partition("(float ")[2].partition(")")[0]
    return function == f"[](float {name}) {{ return {name}; }}"


def counted(reduce: Reduce) -> Expr | None:
    """The condition, if how often it holds is counted: as floats, which is exact below 2²⁴."""
    arg = reduce.arg
    if reduce.ctype != "int64_t" or reduce.kind != "sum" or not isinstance(arg, Op) or arg.text != "(int64_t){0}":
        return None
    return arg.args[0] if arg.args[0].ctype == "bool" else None


def _is_key(reduce: Reduce) -> bool:
    return isinstance(reduce.arg, Op) and reduce.arg.text == "ka_key({0}, {1})"


def _is_position(expr: Expr) -> bool:
    return isinstance(expr, Load) and not expr.buffer and expr.guard is None and not expr.terms


def _dear(expr: Expr) -> bool:
    """Whether an elementary function is in it."""
    return any(isinstance(one, Op) and "ka_" in one.text and not one.text.startswith(_CHEAP) for one in below([expr]))
