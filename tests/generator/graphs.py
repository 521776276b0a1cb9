"""Random graphs: chains of elementwise operators with at most one kind of reduction, at odd sizes."""

from __future__ import annotations

from hypothesis import strategies as st

from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import GraphInput, Operand

UNARY = ("relu", "sigmoid", "tanh", "abs", "neg", "silu", "gelu", "exp", "erf")
BINARY = ("add.Tensor", "sub.Tensor", "mul.Tensor", "maximum")
REDUCE = ("softmax.int", "sum.dim_IntList", "amax", "mean.dim", "layer_norm", "cumsum", "none")


class _Builder:
    def __init__(self, shape: tuple[str, ...], weight_axis: int) -> None:
        self.shape = shape
        weight = tuple(size if axis == weight_axis else "1" for axis, size in enumerate(shape))
        self.inputs = (
            GraphInput(name="x0", spec=TensorSpec(dtype="f32", shape=shape)),
            GraphInput(name="p0", spec=TensorSpec(dtype="f32", shape=weight), kind="param", path="w"),
        )
        self.nodes: list[Node] = []

    def add(self, op: str, *args: Operand, shape: tuple[str, ...] | None = None) -> str:
        name = f"n{len(self.nodes)}"
        spec = TensorSpec(dtype="f32", shape=shape or self.shape)
        self.nodes.append(Node(name=name, op=op, args=args, spec=spec))
        return f"%{name}"

    def chain(self, value: str, ops: list[str]) -> str:
        for op in ops:
            value = self.add(op, value, *(("%p0",) if op in BINARY else ()))
        return value


@st.composite
def graphs(draw: st.DrawFn) -> OpGraph:
    sizes = st.sampled_from(["1", "2", "3", "7", "16", "33", "65", "130"])
    shape = ("B", *draw(st.lists(sizes, min_size=1, max_size=2)))
    axis = draw(st.integers(1, len(shape) - 1))
    # A weight along one dimension that has a size; scalars are tensors of ones all over.
    builder = _Builder(shape, draw(st.integers(1, len(shape) - 1)))
    ops = st.lists(st.sampled_from([*UNARY, *BINARY]), max_size=3)
    value = builder.chain("%x0", draw(ops))
    kind = draw(st.sampled_from(REDUCE))
    if kind in ("softmax.int", "cumsum"):
        value = builder.add(kind, value, axis)
    elif kind == "layer_norm":
        value = builder.add(kind, value, [shape[-1]], None, None, 1e-5)
    elif kind != "none":
        kept = tuple("1" if place == axis else size for place, size in enumerate(shape))
        total = builder.add(kind, value, [axis], True, shape=kept)
        value = builder.add("sub.Tensor", value, total)
    value = builder.add("mul.Tensor", builder.chain(value, draw(ops)), "%p0")
    used = {str(arg)[1:] for node in builder.nodes for arg in node.args if isinstance(arg, str)}
    inputs = tuple(item for item in builder.inputs if item.name in used)
    return OpGraph(dims={"B": 3}, inputs=inputs, nodes=tuple(builder.nodes), outputs=(value[1:],))
