"""Composite operators as several nodes, so that a graph can be cut inside them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.numbers import HALVES
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import Operand


def expand(graph: OpGraph, stay: frozenset[str] = frozenset()) -> OpGraph:
    """The same graph without the operators of `EXPANSIONS`, nodes in `stay` excepted; the graph itself where it has
    none."""
    if not any(_name(node) in EXPANSIONS for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    for node in graph.nodes:
        expansion = None if node.name in stay else EXPANSIONS.get(_name(node))
        nodes += [node] if expansion is None else expansion(_Writer(graph, node))
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def in_steps(graph: OpGraph, dim: int, stay: frozenset[str] = frozenset()) -> OpGraph:
    """The same graph with every sum, mean or extreme over all dimensions as two: over `dim`, then over the rest; but
    not those in `stay`.

    So the first one can be part of what computes its argument row by row, and only one value a row is written.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += (node.name not in stay and _two_steps(_Writer(graph, node), dim)) or [node]
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def _two_steps(writer: _Writer, dim: int) -> list[Node]:
    """Empty where the node is no reduction of a matrix or more to one number."""
    node, name = writer.node, _name(writer.node)
    at = REDUCTION_AT.get(name)
    if node.spec.shape or (at is None and (name not in STEPS or len(node.args) != 1 or node.kwargs)):
        return []
    tensors = node.args[: 1 if at is None else 2]
    shapes = {writer.spec(operand).shape for operand in tensors}
    shape = shapes.pop()
    if shapes or len(shape) <= max(dim, 1):
        return []
    values, reduction = node.args[0], name
    if at is not None:
        chosen = writer.argument(at, "reduction", 1)
        reduction = "mean" if chosen == 1 else "sum"
        kwargs = {key: operand for key, operand in node.kwargs.items() if key != "reduction"}
        args = [*node.args[:at], *[None] * (at - len(node.args)), 0, *node.args[at + 1 :]]
        values = writer.add(node.op, *args, shape=shape, **kwargs)
    rest = tuple(size for place, size in enumerate(shape) if place != dim % len(shape))
    rows = writer.add(STEPS[reduction], values, [dim], shape=rest)
    if reduction != "mean":
        return writer.end(reduction, rows)
    total = writer.add("sum", rows, shape=())
    return writer.end("div.Tensor", total, "*".join(f"({size})" for size in shape))


#: Reductions over everything, and what their first step is.
STEPS = {
    "sum": "sum.dim_IntList",
    "mean": "sum.dim_IntList",
    "max": "amax",
    "min": "amin",
    "amax": "amax",
    "amin": "amin",
}
#: Elementwise losses: where their argument `reduction` is.
REDUCTION_AT = {
    **dict.fromkeys("mse_loss l1_loss huber_loss smooth_l1_loss kl_div soft_margin_loss".split(), 2),
    "binary_cross_entropy": 3,
    "binary_cross_entropy_with_logits": 4,
    "poisson_nll_loss": 5,
}


def _name(node: Node) -> str:
    return node.op.partition(".")[0]


class _Writer:
    """Nodes in the place of one. Values between them are fp32 where the result is of a half type."""

    def __init__(self, graph: OpGraph, node: Node) -> None:
        self.graph, self.node = graph, node
        self.nodes: list[Node] = []
        taken = {value.name for value in graph.inputs} | {one.name for one in graph.nodes}
        self._names = (name for number in count() if (name := f"{node.name}_{number}") not in taken)
        self.dtype = "f32" if node.spec.dtype in HALVES else node.spec.dtype

    def argument(self, position: int, name: str, default: Operand = None) -> Operand:
        return self.node.args[position] if position < len(self.node.args) else self.node.kwargs.get(name, default)

    def spec(self, operand: Operand) -> TensorSpec:
        """Spec of an argument of the node."""
        if not isinstance(operand, str) or not operand.startswith("%"):
            raise Unsupported(f"{self.node.op} wants a tensor, got {operand!r}")
        return self.graph.spec(operand[1:])

    def name(self) -> str:
        """One that nothing else has: those of the graph may be made ones of an earlier expansion."""
        return next(self._names)

    def add(self, op: str, *args: Operand, shape: tuple[str, ...], **kwargs: Operand) -> str:
        name = self.name()
        spec = TensorSpec(dtype=self.dtype, shape=shape)
        self.nodes.append(Node(name=name, op=op, args=args, kwargs=kwargs, spec=spec))
        return f"%{name}"

    def end(self, op: str, *args: Operand) -> list[Node]:
        """The last node, which has the name and the result of the one that is replaced."""
        return [*self.nodes, Node(name=self.node.name, op=op, args=args, spec=self.node.spec)]

    def reduced(self, rows: str, reduction: Operand) -> list[Node]:
        """`rows` itself (0), its mean (1) or sum (2)."""
        if reduction == 0:
            return self.end("alias", rows)
        return self.end("mean" if reduction == 1 else "sum", rows)


def _class_loss(writer: _Writer, smoothing: float, logarithms: bool) -> list[Node]:
    """nll_loss and cross_entropy_loss: (scores, target, weight, reduction, ignore_index)."""
    scores, target = writer.node.args[:2]
    weight, reduction = writer.argument(2, "weight"), writer.argument(3, "reduction", 1)
    ignored = writer.argument(4, "ignore_index", -100)
    shape = writer.spec(scores).shape
    rest = (shape[0], *shape[2:]) if len(shape) > 1 else ()
    rows = writer.add("ka_class_loss", scores, target, weight, ignored, smoothing, logarithms, shape=rest)
    if reduction == 0:
        return writer.reduced(rows, 0)
    if writer.spec(target).dtype[0] == "f":
        # Probabilities: the mean is over the rows, whatever they weigh.
        return writer.reduced(rows, reduction)
    if reduction == 2:
        return writer.end("sum", rows)
    counts = writer.add("ka_class_weight", target, weight, ignored, shape=rest)
    total, below = writer.add("sum", rows, shape=()), writer.add("sum", counts, shape=())
    return writer.end("div.Tensor", total, below)


def _cross_entropy(writer: _Writer) -> list[Node]:
    smoothing = writer.argument(5, "label_smoothing", 0.0)
    return _class_loss(writer, float(str(smoothing)), False)


def _nll(writer: _Writer) -> list[Node]:
    return _class_loss(writer, 0.0, True)


def _triplet(writer: _Writer) -> list[Node]:
    anchor, positive, negative = writer.node.args[:3]
    margin, power = writer.argument(3, "margin", 1.0), writer.argument(4, "p", 2.0)
    eps = writer.argument(5, "eps", 1e-6)
    specs = [writer.spec(operand).shape for operand in (anchor, positive, negative)]
    rest = max(specs, key=len)[:-1]
    if len({len(shape) for shape in specs}) > 1:
        raise Unsupported(f"{writer.node.op} of tensors of different rank")

    def distance(left: Operand, right: Operand) -> str:
        return writer.add("pairwise_distance", left, right, power, eps, shape=rest)

    near, far = distance(anchor, positive), distance(anchor, negative)
    if writer.argument(6, "swap", False):
        far = writer.add("minimum", far, distance(positive, negative), shape=rest)
    apart = writer.add("sub.Tensor", near, far, shape=rest)
    missed = writer.add("clamp_min", writer.add("add.Tensor", apart, margin, shape=rest), 0, shape=rest)
    return writer.reduced(missed, writer.argument(7, "reduction", 1))


def _cosine_embedding(writer: _Writer) -> list[Node]:
    left, right, target = writer.node.args[:3]
    shape = writer.spec(left).shape
    if writer.spec(right).shape != shape or writer.spec(target).shape != shape[:-1]:
        raise Unsupported(f"{writer.node.op} of tensors of different shapes")
    rest = shape[:-1]

    def dot(one: Operand, other: Operand) -> str:
        return writer.add("sum.dim_IntList", writer.add("mul.Tensor", one, other, shape=shape), [-1], shape=rest)

    squares = [writer.add("add.Tensor", dot(side, side), 1e-12, shape=rest) for side in (left, right)]
    length = writer.add("sqrt", writer.add("mul.Tensor", *squares, shape=rest), shape=rest)
    cosine = writer.add("div.Tensor", dot(left, right), length, shape=rest)
    alike = writer.add("rsub.Scalar", cosine, 1, shape=rest)
    margin = writer.argument(3, "margin", 0.0)
    unlike = writer.add("clamp_min", writer.add("sub.Tensor", cosine, margin, shape=rest), 0, shape=rest)
    rows = writer.add("ka_by_sign", alike, unlike, target, shape=rest)
    return writer.reduced(rows, writer.argument(4, "reduction", 1))


def _bias_after(writer: _Writer) -> list[Node]:
    """A convolution without its bias, which becomes an addition: of the library's, or free in the kernel behind it."""
    node, bias = writer.node, writer.argument(2, "bias")
    if bias is None:
        return [node]
    rank = len(writer.spec(node.args[1]).shape) - 2
    channels = node.spec.shape[-1 - rank]
    kwargs = {key: operand for key, operand in node.kwargs.items() if key != "bias"}
    args = (*node.args[:2], None, *node.args[3:])
    plain = Node(name=writer.name(), op=node.op, args=args, kwargs=kwargs, spec=node.spec)
    shape = (channels, *["1"] * rank)
    size: Operand = [int(part) if part.isdigit() else part for part in shape]
    spec = TensorSpec(dtype=writer.spec(bias).dtype, shape=shape)
    shift = Node(name=writer.name(), op="view", args=(bias, size), spec=spec)
    return [plain, shift, *writer.end("add.Tensor", f"%{plain.name}", f"%{shift.name}")]


CONVOLUTIONS = "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution".split()
EXPANSIONS: dict[str, Callable[[_Writer], list[Node]]] = {
    "cross_entropy_loss": _cross_entropy,
    **dict.fromkeys(("nll_loss", "nll_loss_nd", "nll_loss2d"), _nll),
    "triplet_margin_loss": _triplet,
    "cosine_embedding_loss": _cosine_embedding,
    **dict.fromkeys(CONVOLUTIONS, _bias_after),
}
