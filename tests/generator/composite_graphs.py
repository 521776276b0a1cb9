"""Random graphs of several reductions over changing dimensions, with elementwise operators and views between them."""

from __future__ import annotations

from hypothesis import strategies as st

from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import GraphInput, Operand

UNARY = ("relu", "sigmoid", "tanh", "abs", "neg", "silu", "gelu")
STEPS = ("softmax.int", "sum.dim_IntList", "amax", "mean.dim", "layer_norm", "cumsum", "transpose.int", "view", "chain")
ENDS = ("none", "sum", "mean", "argmax", "rows", "two")


class _Builder:
    def __init__(self, dtype: str, shape: tuple[str, ...]) -> None:
        self.dtype = dtype
        self.inputs = (GraphInput(name="x0", spec=TensorSpec(dtype=dtype, shape=shape)),)
        self.nodes: list[Node] = []
        self.value, self.shape = "%x0", shape

    def add(self, op: str, *args: Operand, shape: tuple[str, ...] | None = None, dtype: str = "") -> str:
        """Adds a node that reads the current value; the node becomes the current value."""
        name = f"n{len(self.nodes)}"
        shape = self.shape if shape is None else shape
        spec = TensorSpec(dtype=dtype or self.dtype, shape=shape)
        self.nodes.append(Node(name=name, op=op, args=(self.value, *args), spec=spec))
        self.value, self.shape = f"%{name}", shape
        return self.value


@st.composite
def composite_graphs(draw: st.DrawFn) -> OpGraph:
    sizes = st.sampled_from(["1", "2", "3", "8", "17", "33", "64"])
    shape = ("B", *draw(st.lists(sizes, min_size=1, max_size=2)))
    builder = _Builder(draw(st.sampled_from(["f32", "f32", "bf16", "f16"])), shape)
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=2, max_size=5)):
        _step(builder, step, draw(st.integers(0, 7)))
    outputs = [builder.value[1:]]
    end = draw(st.sampled_from(ENDS))
    if end in ("sum", "mean"):
        outputs = [builder.add(end, shape=())[1:]]
    elif end == "argmax":
        outputs = [builder.add("argmax", -1, True, shape=(*builder.shape[:-1], "1"), dtype="i64")[1:]]
    elif end == "rows":
        outputs.append(builder.add("sum.dim_IntList", [0], shape=builder.shape[1:])[1:])
    elif end == "two" and len(builder.nodes) > 1:
        outputs.append(draw(st.sampled_from(builder.nodes[:-1])).name)
    return OpGraph(dims={"B": 3}, inputs=builder.inputs, nodes=tuple(builder.nodes), outputs=tuple(outputs))


def _step(builder: _Builder, step: str, pick: int) -> None:
    rank = len(builder.shape)
    axis = pick % rank
    if step in ("softmax.int", "cumsum"):
        builder.add(step, axis)
    elif step == "layer_norm" and builder.shape[-1] not in ("1", "B"):
        builder.add(step, [builder.shape[-1]], None, None, 1e-5)
    elif step in ("sum.dim_IntList", "amax", "mean.dim"):
        wide, shape = builder.value, builder.shape
        kept = tuple("1" if place == axis else size for place, size in enumerate(shape))
        builder.add(step, [axis], True, shape=kept)
        if pick >= 4:
            builder.add("sub.Tensor", wide, shape=shape)
    elif step == "transpose.int":
        places = list(builder.shape)
        places[0], places[-1] = places[-1], places[0]
        builder.add(step, 0, rank - 1, shape=tuple(places))
    elif step == "view" and rank == 3:
        joined = (builder.shape[0], _product(*builder.shape[1:]))
        builder.add("reshape", list(joined), shape=joined)
    else:
        builder.add(UNARY[pick % len(UNARY)])


def _product(left: str, right: str) -> str:
    """The size of two joined dimensions, as the exporter writes it."""
    if "B" in (left, right):
        other = right if left == "B" else left
        return "B" if other == "1" else f"{other}*B"
    return str(int(left) * int(right))
