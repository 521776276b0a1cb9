"""One operator with elementwise work before and after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.sizes import Size
from kernel_assistant_training.teacher.moving.forms import has_choice
from kernel_assistant_training.teacher.moving.frame import Loops, launched, loops_of, loops_of_value, without_views
from kernel_assistant_training.teacher.moving.moves import name_of
from kernel_assistant_training.teacher.moving.pull import Puller
from kernel_assistant_training.teacher.moving.rules import RULES
from kernel_assistant_training.teacher.text.answer import Pieces, kernel
from kernel_assistant_training.teacher.text.named import Named
from kernel_assistant_training.teacher.text.terms import Apply, Load, Name, Term, loads

FLOATS = ("f32", "bf16", "f16")


@dataclass(frozen=True)
class Around:
    """An operator of a task. `source` are the loops over its input, `loops` those over its result; both are contiguous.
    `before` is the input's element as a term at a position of `source`. `after` is the element of the task's result as
    a term at a position of `loops`, in which `hole` stands for what the operator's loop computes."""

    named: Named
    source_shape: list[Size]
    source: Loops
    before: Term
    shape: list[Size]
    loops: Loops
    hole: Name
    after: Term
    before_loads: list[Load]
    after_loads: list[Load]


def around(named: Named, value: str, node: str, result: Callable[[Name], Term] = lambda hole: hole) -> Around:
    """Describes the work around the operator `node`. `value` is the name of the operator's result, and `result` turns
    what its loop computes into an element of that. Raises Unsupported if the task has several results, or one that is
    not elementwise in `value`."""
    graph = named.graph
    if len(graph.outputs) != 1:
        raise Unsupported("several results")
    puller = Puller(RULES, named)
    operator = puller.nodes[node]
    source_shape = puller.shape(name_of(operator.args[0]))
    source = loops_of(source_shape)
    before = puller.value(name_of(operator.args[0]), source.at)
    shape = puller.shape(value)
    loops = loops_of(shape)
    output = without_views(named, graph.outputs[0])
    if output != value:
        final = loops_of_value(puller, output)
        if puller.spec(output).strides is not None or [s for s in puller.shape(output) if s != 1] != list(loops.sizes):
            raise Unsupported("a result of another shape")
        home = final.at
    else:
        home = loops.at
    hole = Name("float", "s0")
    after = result(hole)
    if output != value:
        after = Puller(RULES, named, {value: after}, loops.at).value(output, home)
    after = _stored(after, puller.spec(output).dtype)
    if has_choice(before) or has_choice(after):
        raise Unsupported("what depends on its position, where functions get values only")
    return Around(named, source_shape, source, before, shape, loops, hole, after, loads(before), loads(after))


def _stored(term: Term, dtype: str) -> Term:
    """The term without its last rounding, if that is to `dtype`, because the store rounds to it anyway."""
    return term.args[0] if isinstance(term, Apply) and term.text == f"ka_round_{dtype}({{0}})" else term


def in_two(first: Pieces, second: Pieces, sets: str, scratch: str) -> Pieces:
    """Joins two kernels, k0 and k1. The second reads from `scratch` what the first wrote there."""
    (launch,) = second.launches
    return Pieces(
        tuple(sets.split()),
        (scratch,),
        (*first.launches, launch.replace("k0(", "k1(", 1)),
        first.includes,
        first.code + "\n" + second.code.replace(" k0(", " k1(").replace("k0_args", "k1_args"),
    )


def pieces(
    named: Named,
    sets: str,
    sizes: list[str],
    geometry: str,
    include: str,
    body: list[str],
    results: tuple[str, ...] = ("out0",),
    threads: str = "T",
) -> Pieces:
    """One kernel, k0, with `threads` threads a block. `sizes` are arguments such as `rows=B*D0`."""
    arguments = launched(named, "\n".join(body), [*results, *sizes])
    launch = f"k0({', '.join(arguments)}){' ' + geometry if geometry else ''}"
    return Pieces(tuple(sets.split()), (), (launch,), (include,), kernel(named.target, "k0", body, threads))
