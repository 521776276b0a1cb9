"""The names in a row kernel: operands of lambdas, numbers that are the same for a row, the values that are held."""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Const, Expr, Load, Reduce, children
from kernel_assistant.generator.ir.sizes import product
from kernel_assistant.generator.loops.nest import Access
from kernel_assistant_training.teacher.nests.flow import levels, sweeps
from kernel_assistant_training.teacher.text.expressions import ENDS, ExpressionWriter, below, free_name, is_node
from kernel_assistant_training.teacher.text.lowering import Lowered
from kernel_assistant_training.teacher.text.places import merged, plain, row_offset
from kernel_assistant_training.teacher.text.sizes import NoForm


class RowScope:
    """The names and lines of one row kernel. On CUDA a row belongs to `threads`: "T" (a block), "32" (a warp) or "1".
    With `held` its values stay in their registers; on the CPU in a buffer, where that saves work."""

    def __init__(self, lowered: Lowered, *, held: bool, threads: str = "T") -> None:
        self._lowered, self._nest, self._sizes = lowered, lowered.nest, lowered.sizes
        self._cuda, self.threads = lowered.target == "cuda", threads
        self._writer = ExpressionWriter(lowered)
        self._sweeps = sweeps(self._nest, levels(self._nest))
        self._may_hold = held and len(self._sweeps) > 1
        self._arguments = "a." if self._cuda else "a->"
        columns = self._nest.size(self._nest.reduced)
        self._alias = self._sizes.alias(columns, "n")
        self._columns = self._sizes.code(columns)
        #: Names of variables outside of the lambdas by the ids of their expressions, and the held expression.
        self._names: dict[int, str] = {}
        self._held: Expr | None = None
        #: Members of structs, which become variables when they are used.
        self._left: dict[int, str] = {}
        self._scalars = 0
        self._lines: list[str] = []
        self._first: list[str] = []
        self._offsets: dict[str, None] = {}
        self.includes = dict.fromkeys(["ka/rows.cuh" if self._cuda else "ka/rows.h"])

    def _pointer(self, access: Access) -> str:
        offset = self._offset(plain(access))
        base = f"{self._arguments}{access.buffer}"
        return f"{base} + {offset}" if offset else base

    def _offset(self, access: Access) -> str:
        offset = row_offset(access, self._nest.outer, self._sizes)
        self._offsets[offset] = None
        return offset

    def _operand(self, access: Access) -> str:
        """Code that gives the elements of a row: a pointer to them, or `ka::steps` if several columns share one."""
        pointer = self._pointer(access)
        loops = merged(access, self._nest.reduced)
        moving = [number for number, (_, step) in enumerate(loops) if step != 0]
        if len(loops) == 1 and moving == [0]:
            return pointer if loops[0][1] == 1 else f"ka::down({pointer}, {self._sizes.code(loops[0][1])})"
        if moving != [0] or loops[0][1] != 1:
            raise NoForm("an operand with gaps")
        return f"ka::steps({pointer}, {self._sizes.code(product([size for size, _ in loops[1:]]))})"

    def _function(self, expr: Expr) -> tuple[str, list[str]]:
        """A lambda that computes the expression for each element of the row, and its operands. On CUDA its first
        parameter is the held value, which is not among the operands."""
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
        order = self._lowered.buffers()
        read = sorted(used.values(), key=lambda one: (order.index(one[0].buffer), one[0].name))
        parameters = [(load.ctype, access.name) for access, load in read]
        operands = [self._operand(access) for access, _ in read]
        if self._held is not None and (self._cuda or reads_held):
            parameters.insert(0, ("float", "v" if reads_held else ""))
            operands = operands if self._cuda else ["v", *operands]
        if not parameters:
            raise NoForm("a row of equal values")
        return self._writer.lambda_(expr, names, parameters, scalars), operands

    def _edge(self, expr: Expr) -> list[Expr]:
        """The expressions at which a lambda ends: the held value, loads along the row, and what is the same for the
        whole row."""
        found: list[Expr] = []
        stack, seen = [expr], set()
        while stack:
            one = stack.pop()
            if id(one) in seen or isinstance(one, Const):
                continue
            seen.add(id(one))
            if self._names.get(id(one)) == "v" or id(one) not in self._nest.varies or isinstance(one, ENDS):
                found.append(one)
            else:
                stack.extend(children(one)[::-1])
        return found

    def _scalar(self, expr: Expr) -> str:
        """The name of an expression that is the same for the row; the lines that compute it are written."""
        if id(expr) not in self._names:
            self._name_loads(expr)
        if id(expr) not in self._names:
            for one in self._writer.to_name(expr, self._names):
                self._scalar(one)
            self._define(expr, expr.ctype, self._writer.text(expr, self._names))
        return self._names[id(expr)]

    def _name_loads(self, expr: Expr) -> None:
        """Writes the lines for the loads below an expression, and for members of structs that a pass returned."""
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
        if is_node(expr.node):
            name = free_name(expr.node, self._names.values())
        else:
            name, self._scalars = f"s{self._scalars}", self._scalars + 1
        self._names[id(expr)] = name
        self._lines.append(f"const {ctype} {name} = {text};")
