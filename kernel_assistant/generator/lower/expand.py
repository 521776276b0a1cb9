"""Replaces composite operators by several simpler nodes, which different kernels may then compute."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.literals import as_number
from kernel_assistant.generator.ir.sizes import fixed, size_operands
from kernel_assistant.generator.lower.einsum.steps import einsum_in_steps
from kernel_assistant.generator.lower.large_convolutions import as_product
from kernel_assistant.generator.lower.movement.sorting import ORDERED
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.generator.lower.numbers import HALVES
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import Operand


def expand(graph: OpGraph, stay: frozenset[str] = frozenset()) -> OpGraph:
    """Returns the graph with each operator of `EXPANSIONS` replaced by several nodes, except for the nodes whose names
    are in `stay`; the graph itself if it has no such operator.
    """
    if not any(_name(node) in EXPANSIONS for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    made: set[str] = set()
    for node in graph.nodes:
        if node.name in made:  # a result of an operator with several
            continue
        expansion = None if node.name in stay else EXPANSIONS.get(_name(node))
        written = [node] if expansion is None else expansion(NodeWriter(graph, node))
        nodes += written
        made.update(one.name for one in written)
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def in_steps(graph: OpGraph, dim: int, stay: frozenset[str] = frozenset()) -> OpGraph:
    """Returns the graph with every sum, mean, extreme or elementwise loss that reduces a tensor to one number split
    into two reductions: over `dim`, then over the other dimensions. Nodes whose names are in `stay` are not split.

    The kernel that computes the argument row by row can then compute the first reduction too, and writes only one value
    for each row.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += (node.name not in stay and _two_steps(NodeWriter(graph, node), dim)) or [node]
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def _two_steps(writer: NodeWriter, dim: int) -> list[Node]:
    """Returns the nodes that replace a reduction: first over `dim`, then over the other dimensions. Returns an empty
    list if the node does not reduce a tensor of two or more dimensions to one number.
    """
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
    rest = tuple(size for index, size in enumerate(shape) if index != dim % len(shape))
    rows = writer.add(STEPS[reduction], values, [dim], shape=rest)
    if reduction != "mean":
        return writer.end(reduction, rows)
    total = writer.add("sum", rows, shape=())
    return writer.end("div.Tensor", total, _elements(*shape))


def _elements(*shape: str) -> str:
    """Returns the product of the sizes in a shape as text, such as `(D0)*(4)`; an empty text for a shape without
    dimensions."""
    return "*".join(f"({size})" for size in shape)


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


def _class_loss(writer: NodeWriter, smoothing: float, logarithms: bool) -> list[Node]:
    """Returns the nodes that replace nll_loss or cross_entropy_loss with the arguments (scores, target, weight,
    reduction, ignore_index). `logarithms` is True if the scores are log-probabilities.
    """
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


def _cross_entropy(writer: NodeWriter) -> list[Node]:
    smoothing = writer.argument(5, "label_smoothing", 0.0)
    return _class_loss(writer, as_number(smoothing, writer.node.op), False)


def _nll(writer: NodeWriter) -> list[Node]:
    return _class_loss(writer, 0.0, True)


def _triplet(writer: NodeWriter) -> list[Node]:
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


def _cosine_embedding(writer: NodeWriter) -> list[Node]:
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


def _bias_after(writer: NodeWriter) -> list[Node]:
    """Returns the nodes that replace a convolution with a bias: the convolution without it, then the addition of the
    bias, which the library may fuse and which costs nothing in the next kernel. A 1×1 convolution that is too large for
    cuDNN becomes a matrix product.
    """
    if product := as_product(writer):
        return product
    node, bias = writer.node, writer.argument(2, "bias")
    if bias is None:
        return [node]
    rank = len(writer.spec(node.args[1]).shape) - 2
    channels = node.spec.shape[-1 - rank]
    kwargs = {key: operand for key, operand in node.kwargs.items() if key != "bias"}
    args = (*node.args[:2], None, *node.args[3:])
    plain = Node(name=writer.name(), op=node.op, args=args, kwargs=kwargs, spec=node.spec)
    shape = (channels, *["1"] * rank)
    spec = TensorSpec(dtype=writer.spec(bias).dtype, shape=shape)
    shift = Node(name=writer.name(), op="view", args=(bias, size_operands(shape)), spec=spec)
    return [plain, shift, *writer.end("add.Tensor", f"%{plain.name}", f"%{shift.name}")]


def _dot(writer: NodeWriter) -> list[Node]:
    """Returns the nodes that replace a product of two vectors: an elementwise product and its sum. Any other product is
    returned unchanged."""
    left, right = writer.node.args[:2]
    shape = writer.spec(left).shape
    if len(shape) != 1 or writer.spec(right).shape != shape:
        return [writer.node]
    return writer.end("sum", writer.add("mul.Tensor", left, right, shape=shape))


def _bilinear(writer: NodeWriter) -> list[Node]:
    """Returns the nodes that replace `bilinear`: a matrix product with the second input, then a sum over the first
    input's last dimension. With half types the node is returned unchanged, because the result of the product would be
    rounded.
    """
    first, second, weight = writer.node.args[:3]
    bias, dtype = writer.argument(3, "bias"), writer.node.spec.dtype
    *rest, inputs = writer.spec(first).shape
    out, _, others = writer.spec(weight).shape
    if dtype in HALVES:
        return [writer.node]
    flat = writer.view(weight, (_elements(out, inputs), others), dtype)
    product = writer.add("linear", second, flat, shape=(*rest, _elements(out, inputs)))
    beside = writer.view(product, (*rest, out, inputs), dtype)
    rows = writer.view(first, (*rest, "1", inputs), dtype)
    terms = writer.add("mul.Tensor", beside, rows, shape=(*rest, out, inputs))
    if bias is None:
        return writer.end("sum.dim_IntList", terms, [-1])
    return writer.end("add.Tensor", writer.add("sum.dim_IntList", terms, [-1], shape=(*rest, out)), bias)


def _take(writer: NodeWriter) -> list[Node]:
    """Returns the nodes that replace `take`: `index` on the flattened tensor."""
    value, positions = writer.node.args[:2]
    if not isinstance(positions, str):
        raise Unsupported(f"{writer.node.op} wants a tensor, got {positions!r}")
    shape = writer.spec(value).shape
    flat = (_elements(*shape) or "1",)
    return writer.end("index.Tensor", writer.view(value, flat, writer.spec(value).dtype), [positions])


def _frexp(writer: NodeWriter) -> list[Node]:
    """Returns the nodes that replace `frexp`, one for the mantissas and one for the exponents."""
    if not writer.returns(None):
        return []
    for number, op in enumerate(("ka_mantissa", "ka_exponent")):
        if writer.wants(number):
            writer.result(number, op, writer.node.args[0])
    return writer.nodes


CONVOLUTIONS = "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution".split()
#: Most positions that are written one by one.
MOST_WRITTEN = 8


def _index_copy(writer: NodeWriter) -> list[Node]:
    """Returns the nodes that replace index_copy(base, dim, index, source), which writes the slices of `source` to
    `base` at the positions `index` of `dim`.
    """
    base, dim, index, source = writer.node.args[:4]
    rank = len(writer.spec(base).shape)
    if not isinstance(dim, int) or not rank:
        return [writer.node]
    return _written_at(writer, base, dim % rank, index, source)


def _index_put(writer: NodeWriter) -> list[Node]:
    """Returns the nodes that replace base[:, :, index] = source, with an index for one dimension. Any other `index_put`
    is returned unchanged."""
    base, items, source = writer.node.args[:3]
    dims = [dim for dim, item in enumerate(items) if item is not None] if isinstance(items, list) else []
    if len(dims) != 1 or writer.argument(3, "accumulate", False) or not isinstance(items, list):
        return [writer.node]
    return _written_at(writer, base, dims[0], items[dims[0]], source)


def _written_at(writer: NodeWriter, base: Operand, dim: int, index: Operand, source: Operand) -> list[Node]:
    """Returns nodes that compute `base` with the slices of `source` at the positions `index` of dimension `dim`, as in
    a key cache. If a position occurs twice, the last slice counts. Returns the node unchanged if there are more than
    MOST_WRITTEN positions, if `index` is not int64, or if `base` and `source` have different dtypes."""
    shape, spec, given = writer.spec(base).shape, writer.spec(index), writer.spec(source)
    count = fixed(spec.shape[0]) if len(spec.shape) == 1 else None
    if spec.dtype != "i64" or not count or count > MOST_WRITTEN or given.dtype != writer.spec(base).dtype:
        return [writer.node]
    size, rest = shape[dim], ("1",) * (len(shape) - dim - 1)
    (length,) = size_operands([size])
    below = writer.typed("b1", "lt.Scalar", index, 0, shape=spec.shape)
    wrapped = writer.typed("i64", "add.Tensor", index, length, shape=spec.shape)
    index = writer.typed("i64", "where.self", below, wrapped, index, shape=spec.shape)
    along = len(given.shape) - len(rest) - 1
    several = along >= 0 and given.shape[along] != "1"
    positions = writer.typed("i64", "arange", length, shape=(size,))
    for number in range(count):
        one = writer.typed("i64", "slice.Tensor", index, 0, number, number + 1, shape=("1",))
        here = writer.typed("b1", "eq.Tensor", positions, one, shape=(size,))
        here = writer.view(here, (size, *rest), "b1")
        row = source
        if several:
            sizes = (*given.shape[:along], "1", *given.shape[along + 1 :])
            row = writer.typed(given.dtype, "slice.Tensor", source, along, number, number + 1, shape=sizes)
        if number == count - 1:
            return writer.end("where.self", here, row, base)
        base = writer.typed(given.dtype, "where.self", here, row, base, shape=shape)
    raise AssertionError("count is at least 1")


EXPANSIONS: dict[str, Callable[[NodeWriter], list[Node]]] = {
    "cross_entropy_loss": _cross_entropy,
    **dict.fromkeys(("nll_loss", "nll_loss_nd", "nll_loss2d"), _nll),
    "triplet_margin_loss": _triplet,
    "take": _take,
    "index_copy": _index_copy,
    "index_put": _index_put,
    "bilinear": _bilinear,
    "cosine_embedding_loss": _cosine_embedding,
    **dict.fromkeys(CONVOLUTIONS, _bias_after),
    **dict.fromkeys(("dot", "vdot", "matmul"), _dot),
    "einsum": einsum_in_steps,
    "frexp": _frexp,
    **ORDERED,
}
