"""Where values in half precision are compared, they are rounded first, as PyTorch rounds after each operator.

Elsewhere kernels compute in float, because one rounding more or less is within the tolerance of a half type. But two
values that round to the same number are equal for argmax, which takes the first of them, and for a comparison.
Constants that values are compared with are rounded in the lowering (`generator/lower/numbers.py`).
"""

from __future__ import annotations

import msgspec

from kernel_assistant.generator.lower.pointwise import COMPARE
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.canonical import Canonical
from kernel_assistant.records.graph import references
from kernel_assistant_training.teacher.moving.frame import HALVES
from kernel_assistant_training.teacher.moving.rules import RULES

#: Operators whose result jumps where one operand passes another, or passes a number.
ORDERED = frozenset(
    (
        *COMPARE,
        *"argmax argmin floor ceil round trunc frac sign sgn floor_divide remainder fmod threshold".split(),
        *"heaviside signbit copysign angle".split(),
    )
)
#: The same for extremes whose positions are read.
PLACED = ("max.dim", "min.dim")
#: Operators whose result is one of their operands, which is rounded already.
CHOOSING = frozenset(
    "neg abs relu maximum minimum fmax fmin amax amin max min where masked_fill clamp clamp_min clamp_max "
    "floor ceil round trunc sign sgn fmod cummax cummin _to_copy to type_as dropout scalar_tensor".split()
) | (RULES.keys() - {"glu"})


def rounded(task: Canonical) -> Canonical:
    """The task with roundings before all operators that compare; the task itself if it has none."""
    graph = task.graph
    ordered = [node for node in graph.nodes if _is_ordered(graph, node)]
    specs = [value.spec for value in graph.inputs] + [node.spec for node in graph.nodes]
    if not ordered or not any(map(_is_half, specs)):
        return task
    above = _above(graph, ordered)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name in above and _is_half(node.spec) and not _chooses(node):
            exact = f"{node.name}_exact"
            single = TensorSpec(dtype="f32", shape=node.spec.shape)
            nodes.append(msgspec.structs.replace(node, name=exact, spec=single))
            nodes.append(Node(name=node.name, op="_to_copy", args=(f"%{exact}",), spec=node.spec))
        else:
            nodes.append(node)
    if len(nodes) == len(graph.nodes):
        return task
    made = OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)
    return Canonical(graph=made, sizes=task.sizes, constants=task.constants)


def _is_half(spec: TensorSpec) -> bool:
    return spec.dtype in HALVES


def _is_ordered(graph: OpGraph, node: Node) -> bool:
    if node.op in PLACED:
        picks = [one for one in graph.nodes if one.op == "getitem" and one.args[0] == f"%{node.name}"]
        return any(one.args[1] == 1 for one in picks)
    to_integer = node.op.partition(".")[0] in ("_to_copy", "to") and node.spec.dtype[0] in "iu"
    return to_integer or node.op.partition(".")[0] in ORDERED or "rounding_mode" in node.kwargs


def _above(graph: OpGraph, ordered: list[Node]) -> set[str]:
    """The nodes on which one of `ordered` depends."""
    nodes = {node.name: node for node in graph.nodes}
    found: set[str] = set()
    left = [name for node in ordered for name in references(node)]
    while left:
        name = left.pop()
        if name in nodes and name not in found:
            found.add(name)
            left.extend(references(nodes[name]))
    return found


def _chooses(node: Node) -> bool:
    """Whether the node's result is one of its operands, or a number that every type has exactly (not C0)."""
    constant = any(isinstance(item, str) and item[:1] == "C" for item in (*node.args, *node.kwargs.values()))
    return node.op.partition(".")[0] in CHOOSING and not constant
