"""Divides the work of a LoopNest into passes over its reduced loops R: the values that each pass computes, keeps and
stores."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from kernel_assistant.generator.ir.expr import Const, Expr, Op, PrefixScan, Reduce, children
from kernel_assistant.generator.loops.nest import Access, LoopNest
from kernel_assistant.generator.lower.lower import Output


@dataclass(slots=True)
class Pass:
    """One pass over the reduced loops R.

    `scope` is computed before the pass, once for all of R; `body` at each position. `kept` are the values of `body`
    that later passes read, `reduces` the reductions that this pass completes, `stores` the outputs that it writes at
    each position (last pass only).
    """

    scope: list[Expr] = field(default_factory=list)
    body: list[Expr] = field(default_factory=list)
    kept: list[Expr] = field(default_factory=list)
    reduces: list[Reduce] = field(default_factory=list)
    stores: list[tuple[Access, Output]] = field(default_factory=list)


@dataclass(slots=True)
class Passes:
    """All passes in order; `scope` and `stores` are the values and outputs after the passes, which do not vary along R.
    `given` has the `id`s of expressions that need no statement: reductions that share a pass give their values.
    """

    passes: list[Pass]
    scope: list[Expr]
    stores: list[tuple[Access, Output]]
    given: set[int] = field(default_factory=set)

    @property
    def computed(self) -> list[Expr]:
        """All expressions that some statement computes. Where reductions share a pass, some expressions of the nest are
        not needed.
        """
        inside = [expr for part in self.passes for expr in (*part.scope, *part.body, *part.reduces)]
        return [*inside, *self.scope]

    @property
    def kept(self) -> list[Expr]:
        return [expr for part in self.passes for expr in part.kept]


def joint_reduce(expr: Reduce, joint: bool | str) -> tuple[str, Expr, Reduce] | None:
    """Returns `expr.joint` if `expr` is computed in the same pass as the reduction that `expr.joint` names; None
    otherwise. `joint` selects the kinds of reductions that share a pass: True for all, False for none, or the name of
    one kind.
    """
    wanted = expr.joint is not None and joint in (True, expr.joint[0])
    return expr.joint if wanted else None


def given_moments(nest: LoopNest, total: Reduce, squares: Reduce) -> tuple[list[Expr], list[Expr]]:
    """Returns the expressions whose values need no statement if one pass computes both `total` (a sum) and `squares`
    (Σ(x - mean)²), as two lists. The first has the means of the summed values. The second has the corrections of
    `squares` for the rounding of the mean; it is empty unless values are summed as differences from the first of their
    row.
    """
    mean = squares.arg.args[1] if isinstance(squares.arg, Op) and len(squares.arg.args) == 2 else None
    if not isinstance(mean, Op):
        return [], []
    if mean.args[0] is total:
        return [mean], []
    return [mean.args[1]], [expr for expr in nest.program.exprs if squares in children(expr)]


def nothing(expr: Expr) -> bool:
    """Returns False. As the `keep` function of `plan_passes` it lets each pass compute all from the loads again."""
    return False


def plan_passes(nest: LoopNest, keep: Callable[[Expr], bool] = nothing, joint: bool | str = False) -> Passes:
    """Plans the passes of a nest over its reduced loops. `keep` returns whether a value is kept for later passes;
    `joint` selects the kinds of reductions that share a pass (see `joint_reduce`).
    """
    level: dict[int, int] = {}
    ends: dict[int, list[Reduce]] = {}
    for expr in nest.program.exprs:
        if isinstance(expr, Reduce):
            together = joint_reduce(expr, joint)
            at = level[id(together[1] if together else expr.arg)]
            ends.setdefault(at, []).append(expr)
            level[id(expr)] = at + 1
        else:
            level[id(expr)] = max((level[id(child)] for child in children(expr)), default=0)
    loops = set(nest.reduced) or set(nest.inner)
    inside = [pair for pair in nest.stores if id(pair[1].expr) in nest.varies or loops & set(pair[0].index)]
    outside = [pair for pair in nest.stores if pair not in inside]
    planner = _Planner(nest, keep)
    pairs = [(pair, one) for one in nest.reduces if (pair := joint_reduce(one, joint)) and pair[0] == "m2"]
    given = {id(expr) for pair, one in pairs for moments in given_moments(nest, pair[2], one) for expr in moments}
    planner.ready |= given
    count = max(ends, default=-1) + 1
    for number in range(count):
        targets = [t[1] if (t := joint_reduce(reduce, joint)) else reduce.arg for reduce in ends.get(number, [])]
        planner.add(targets, ends.get(number, []), [])
    if inside:
        planner.add([output.expr for _, output in inside], [], inside)
    scope = planner.scoped([output.expr for _, output in outside])
    for part in planner.passes:
        part.kept.sort(key=planner.place)
    return Passes(planner.passes, scope, outside, given)


def below(roots: list[Expr], until: type[Expr] = Reduce, given: AbstractSet[int] = frozenset()) -> set[int]:
    """Returns the `id`s of `roots` and of all expressions from which they are computed. The search stops at expressions
    of the type `until` (reductions by default) and at those in `given`, which are included.
    """
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        expr = waiting.pop()
        if id(expr) not in seen:
            seen.add(id(expr))
            waiting += [] if isinstance(expr, until) or id(expr) in given else children(expr)
    return seen


def read_elsewhere(nest: LoopNest, exprs: list[Expr], plan: Passes | None = None) -> list[Expr]:
    """Returns those of `exprs` that an output or an expression outside of `exprs` reads. With `plan`, only expressions
    that the plan computes count as readers.
    """
    own = {id(expr) for expr in exprs}
    read = {id(output.expr) for _, output in nest.stores}
    computed = nest.program.exprs if plan is None else plan.computed
    for expr in computed:
        if id(expr) not in own:
            read.update(id(child) for child in children(expr))
    return [expr for expr in exprs if id(expr) in read]


class _Planner:
    def __init__(self, nest: LoopNest, keep: Callable[[Expr], bool]) -> None:
        self.varies = nest.varies
        self._places = {id(expr): number for number, expr in enumerate(nest.program.exprs)}
        self.keep = keep
        self.passes: list[Pass] = []
        self.home: dict[int, Pass] = {}
        self.ready: set[int] = set()

    def add(self, targets: list[Expr], reduces: list[Reduce], stores: list[tuple[Access, Output]]) -> None:
        part = Pass(reduces=reduces, stores=stores)
        seen: set[int] = set()
        edge: list[Expr] = []
        for target in targets:
            self._visit(target, part, seen, edge)
        part.body.sort(key=self.place)
        part.scope = self.scoped(edge)
        self.passes.append(part)
        self.home.update((id(expr), part) for expr in part.body if id(expr) not in self.home and self.keep(expr))

    def _visit(self, expr: Expr, part: Pass, seen: set[int], edge: list[Expr]) -> None:
        if id(expr) in seen:
            return
        seen.add(id(expr))
        if id(expr) not in self.varies:
            edge.append(expr)
            return
        home = self.home.get(id(expr))
        if home is not None:
            if not any(expr is kept for kept in home.kept):
                home.kept.append(expr)
            return
        for child in children(expr):
            self._visit(child, part, seen, edge)
        part.body.append(expr)

    def scoped(self, targets: list[Expr]) -> list[Expr]:
        """Returns the expressions that do not vary along R, are not computed yet and are needed for `targets`, in
        order. Marks them as computed."""
        scope: list[Expr] = []
        for target in targets:
            self._scope(target, scope)
        return sorted(scope, key=self.place)

    def place(self, expr: Expr) -> int:
        """Returns the number of an expression in the order of the graph."""
        return self._places[id(expr)]

    def _scope(self, expr: Expr, scope: list[Expr]) -> None:
        if id(expr) in self.ready or isinstance(expr, Const | Reduce | PrefixScan):
            return
        self.ready.add(id(expr))
        for child in children(expr):
            self._scope(child, scope)
        scope.append(expr)
