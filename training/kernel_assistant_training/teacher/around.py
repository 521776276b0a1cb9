"""One operator in the middle of a task: what is computed of its input before, and of its result behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.sizes import Size
from kernel_assistant_training.teacher.answer import Pieces, kernel
from kernel_assistant_training.teacher.forms import has_choice
from kernel_assistant_training.teacher.frame import Loops, launched, loops_of, loops_of_value, without_views
from kernel_assistant_training.teacher.moves import name_of
from kernel_assistant_training.teacher.named import Named
from kernel_assistant_training.teacher.pull import Puller
from kernel_assistant_training.teacher.terms import Apply, Load, Name, Term, loads

FLOATS = ("f32", "bf16", "f16")


@dataclass(frozen=True)
class Around:
    """`source` are loops over the operator's input, `loops` over its result, both contiguous; `before` is what the
    input is at such a position, `after` what the task gives where the operator's loop gives `hole`."""

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
    """`value` is the name of what the operator `node` gives: `result` of what its loop gives. Raises Unsupported where
    the task has several results, or one that is not elementwise in the operator's."""
    graph = named.graph
    if len(graph.outputs) != 1:
        raise Unsupported("several results")
    puller = Puller(named)
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
        after = Puller(named, {value: after}, loops.at).value(output, home)
    after = _stored(after, puller.spec(output).dtype)
    if has_choice(before) or has_choice(after):
        raise Unsupported("what depends on its position, where functions get values only")
    return Around(named, source_shape, source, before, shape, loops, hole, after, loads(before), loads(after))


def _stored(term: Term, dtype: str) -> Term:
    """What is written where the store rounds to `dtype` itself."""
    return term.args[0] if isinstance(term, Apply) and term.text == f"ka_round_{dtype}({{0}})" else term


def in_two(first: Pieces, second: Pieces, sets: str, scratch: str) -> Pieces:
    """Two kernels, k0 and k1, of which the second reads what the first left in `scratch`."""
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
    """One kernel, k0, of `threads` a block; `sizes` are fields such as `rows=B*D0`."""
    arguments = launched(named, "\n".join(body), [*results, *sizes])
    launch = f"k0({', '.join(arguments)}){' ' + geometry if geometry else ''}"
    return Pieces(tuple(sets.split()), (), (launch,), (include,), kernel(named.target, "k0", body, threads))
