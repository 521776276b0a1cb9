"""Decides which operators can read a tensor with channels last without a copy, and which of them then write their
result with channels last."""

from __future__ import annotations

import math

from kernel_assistant.generator.ir.operators import FREE, operator
from kernel_assistant.generator.ir.sizes import fixed
from kernel_assistant.generator.library.convolutions import CONVOLUTIONS
from kernel_assistant.generator.library.library import TURNS
from kernel_assistant.generator.library.products import PRODUCTS, argument
from kernel_assistant.generator.lower.lower import LOWERINGS
from kernel_assistant.generator.lower.moving import LONGEST
from kernel_assistant.generator.lower.reductions import REDUCTIONS
from kernel_assistant.generator.lower.windows import FEWEST_NEIGHBOURS
from kernel_assistant.generator.lower.windows_lower import WINDOWS
from kernel_assistant.generator.plan.cost import elements
from kernel_assistant.records import Node, TensorSpec
from kernel_assistant.records.graph import Operand

#: A reduction to so much less may read across: what it writes is small.
SMALLER = 8
#: Norms that give every element a value of its own, over dimensions that do not matter here.
PER_ELEMENT = frozenset(
    "softmax _softmax _safe_softmax log_softmax _log_softmax batch_norm _native_batch_norm_legit_no_training "
    "ka_by_moments".split()
)


def is_elementwise(node: Node) -> bool:
    name = operator(node)
    return name not in LOWERINGS and name not in FREE and name not in PRODUCTS and name not in CONVOLUTIONS


def is_per_element(node: Node) -> bool:
    """Whether each element of the result depends only on the elements of the operands at the same position (and on
    statistics of its channel)."""
    given = ("batch_norm", "_native_batch_norm_legit_no_training", "getitem")
    return is_elementwise(node) or operator(node) in given


def joins_channels(node: Node) -> bool:
    """Whether the node is a `cat` along the channel dimension."""
    if operator(node) not in ("cat", "concat", "concatenate"):
        return False
    return argument(node, 1, "dim", 0) in (1, 1 - len(node.spec.shape))


def is_pool(node: Node) -> bool:
    return operator(node) in WINDOWS


def reads_any_order(node: Node, read: TensorSpec, dims: dict[str, int]) -> bool:
    """Whether the node may read a tensor with the layout `read` (channels last) directly, without a copy to channels
    first. `dims` has the base sizes of the free dimensions."""
    if is_elementwise(node) or operator(node) in (*TURNS, "getitem") or follows(node, read):
        return True
    if operator(node) in REDUCTIONS or _pools_all(node):
        return elements(node.spec, dims) * SMALLER <= elements(read, dims)
    return operator(node) == "ka_group_moments"


def follows(node: Node, read: TensorSpec) -> bool:
    """Whether the node, which reads a tensor `read` with channels last, writes its result with channels last too."""
    if node.spec.strides is not None or len(node.spec.shape) != len(read.shape):
        return False
    if joins_channels(node):
        return True
    if is_pool(node):
        return _pools_beside(node, read)
    if node.spec.shape != read.shape:
        return False
    if operator(node) in ("layer_norm", "native_layer_norm"):
        # Weights for each channel would lie across.
        return operator(node) == "layer_norm" and len(_list(node.args[1])) <= len(read.shape) - 2
    return is_elementwise(node) or operator(node) in PER_ELEMENT or operator(node) == "getitem"


def norm_in_two(node: Node, read: TensorSpec) -> list[Node]:
    """Returns the nodes that replace a norm over groups of channels: first those that compute its moments, last the one
    that normalizes. With channels last, the elements of a group are not contiguous, but each of the two steps reads
    memory in order. For any other node, returns a list of this node only.
    """
    groups, weight, bias, eps = _grouped(node, read)
    if groups is None:
        return [node]
    dtype = "f64" if read.dtype == "f64" else "f32"
    spec = TensorSpec(dtype=dtype, shape=(node.spec.shape[0], str(groups)))
    moments, names = f"{node.name}_moments", (f"{node.name}_mean", f"{node.name}_scale")
    nodes = [Node(name=moments, op="ka_group_moments", args=(node.args[0], groups, eps), spec=spec)]
    nodes += [Node(name=name, op="getitem", args=(f"%{moments}", index), spec=spec) for index, name in enumerate(names)]
    # The moments are read first, so that what is computed again stands behind them.
    args = (*(f"%{name}" for name in names), node.args[0], groups, weight, bias)
    return [*nodes, Node(name=node.name, op="ka_by_moments", args=args, spec=node.spec)]


def _grouped(node: Node, read: TensorSpec) -> tuple[int | None, Operand, Operand, Operand]:
    """Returns (groups, weight, bias, eps) of a norm that computes its own statistics; groups is None for any other
    node.
    """
    if operator(node) == "group_norm" and isinstance(node.args[1], int):
        return node.args[1], argument(node, 2, "weight"), argument(node, 3, "bias"), argument(node, 4, "eps", 1e-5)
    own = argument(node, 5, "use_input_stats", True) and argument(node, 3, "running_mean") is None
    if operator(node) == "instance_norm" and own and (channels := fixed(read.shape[1])) is not None:
        return (
            channels,
            argument(node, 1, "weight"),
            argument(node, 2, "bias"),
            argument(node, 7, "eps", 1e-5),
        )
    return None, None, None, None


def _pools_beside(node: Node, read: TensorSpec) -> bool:
    """Whether a pooling window is small enough to be unrolled, with vector loads along the channels."""
    if "with_indices" in node.op or (fixed(read.shape[1]) or 0) < FEWEST_NEIGHBOURS:
        return False
    before, after = ([size for one in shape[2:] if (size := fixed(one))] for shape in (read.shape, node.spec.shape))
    if len(before) + len(after) < len(read.shape[2:]) + len(node.spec.shape[2:]):
        return False
    if "adaptive" in node.op:
        even = all(one % other == 0 for one, other in zip(before, after, strict=True))
        sizes = [one // other for one, other in zip(before, after, strict=True)]
        return even and _count(sizes, 1) <= LONGEST and not operator(node).startswith("adaptive_max")
    kernel = [size for size in _list(node.args[1]) if isinstance(size, int)]
    return bool(kernel) and _count(kernel, len(after)) <= LONGEST


def _count(sizes: list[int], dims: int) -> int:
    """Returns the number of positions in a window of `dims` dimensions. A single size counts for every dimension."""
    return math.prod(sizes) if len(sizes) > 1 else math.prod(sizes) ** dims


def _pools_all(node: Node) -> bool:
    return is_pool(node) and all(size == "1" for size in node.spec.shape[2:])


def _list(operand: Operand) -> list[Operand]:
    return list(operand) if isinstance(operand, list) else [operand]
