"""The lines for reductions in a row kernel. A line computes one reduction, or two in one pass."""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Expr, Load, Op, Reduce
from kernel_assistant_training.teacher.nests.row_scope import RowScope
from kernel_assistant_training.teacher.text.expressions import below
from kernel_assistant_training.teacher.text.places import plain
from kernel_assistant_training.teacher.text.sizes import NoForm

#: Of truth values.
OPERATORS = {"any": "max", "all": "min"}
PICK = "({1} == {2} ? {0} : 0)"


class RowReductions(RowScope):
    """Writes the lines for reductions, in the order in which they are asked for."""

    def _reduce(self, reduce: Reduce) -> set[int]:
        """Writes lines for a reduction, or for two that one pass computes; returns the ids of these reductions."""
        special = self._moments(reduce) or self._online(reduce)
        if special:
            return special
        if is_key(reduce):
            self._place(reduce)
        elif isinstance(reduce.arg, Op) and reduce.arg.text == PICK and _is_position(reduce.arg.args[1]):
            self._pick(reduce, reduce.arg)
        else:
            function, operands = self._function(counted(reduce) or reduce.arg)
            self._define(reduce, reduce.ctype, self._fold(OPERATORS.get(reduce.kind, reduce.kind), function, operands))
        return {id(reduce)}

    def _fold(self, operator: str, function: str, operands: list[str]) -> str:
        if self._cuda and self._held is not None:
            if function == "[](float v) { return v; }" and operator in ("sum", "max", "min"):
                return f"x.{operator}()"
            return f"x.fold<ka::{operator}>({', '.join([function, *operands])})"
        kind = f"{self.threads}, V, ka::{operator}" if self._cuda else f"ka::{operator}"
        return f"ka::fold_row<{kind}>({', '.join([self._columns, function, *operands])})"

    def _moments(self, first: Reduce) -> set[int]:
        """Writes a sum and the sum of squares around its mean in one pass, if `first` is such a sum."""
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
        """Writes a maximum and the sum of exponentials relative to it in one pass, if the row is not held."""
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
        """Writes argmax: the maximum of the keys is only used for its position."""
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
        """Writes a reduction that selects the value of one column: the code reads the element at that position."""
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


def _identity(function: str) -> bool:
    name = function.partition("(float ")[2].partition(")")[0]
    return function == f"[](float {name}) {{ return {name}; }}"


def counted(reduce: Reduce) -> Expr | None:
    """The condition whose true values the reduction counts, else None. Counting in float is exact below 2²⁴."""
    arg = reduce.arg
    if reduce.ctype != "int64_t" or reduce.kind != "sum" or not isinstance(arg, Op) or arg.text != "(int64_t){0}":
        return None
    return arg.args[0] if arg.args[0].ctype == "bool" else None


def is_key(reduce: Reduce) -> bool:
    return isinstance(reduce.arg, Op) and reduce.arg.text == "ka_key({0}, {1})"


def _is_position(expr: Expr) -> bool:
    return isinstance(expr, Load) and not expr.buffer and expr.guard is None and not expr.terms
