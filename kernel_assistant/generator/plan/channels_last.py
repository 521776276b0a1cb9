"""Changes convolutions to the memory order channels-last, which is how cuDNN's engines for tensor cores read memory.

For tensors with channels first, cuDNN reorders memory before and after by kernels of its own. Here kernels of the
generator reorder it, fused with elementwise work. Measured on an H200: cuDNN itself is 1.3 to 3 times faster. Operators
after a convolution keep that order as far as possible (`channels_last_readers.py`); values that must have channels
first are transposed at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set as AbstractSet
from typing import Literal

from msgspec.structs import replace

from kernel_assistant.generator.ir.operators import COPY, PLAIN_CONVOLUTIONS, operator
from kernel_assistant.generator.ir.sizes import fixed, parse_size, product, shape_text
from kernel_assistant.generator.library.convolutions import CONVOLUTIONS, TURNED
from kernel_assistant.generator.library.products import argument
from kernel_assistant.generator.lower.depthwise import BY_CHANNELS
from kernel_assistant.generator.lower.moving import LONGEST_WEIGHTED
from kernel_assistant.generator.plan.channels_last_readers import (
    follows,
    is_elementwise,
    is_per_element,
    is_pool,
    joins_channels,
    norm_in_two,
    reads_any_order,
)
from kernel_assistant.generator.plan.cost import elements
from kernel_assistant.generator.plan.residual import renamed
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import references, spec_of

#: What computes depthwise convolutions with channels last: a library, or our kernels. If it is empty they keep channels
#: first.
Depthwise = Literal["", "library", "kernel"]
#: A copy to channels first. What reads it is in another part: it would read across, element by element.
COPY_BACK = f"{COPY}.back"
#: What the name of a value ends in that another launch computes a second time.
AGAIN = "_again"
#: Below this number of elements of all convolutions the launches that change the order cost more than they bring. Those
#: with filters of one element, which are plain products in either order, do not count.
LEAST_ELEMENTS = 1 << 20
#: By the number of dimensions. A convolution of images of 3 channels takes 0.6 of the time with channels last, which
#: uses tensor cores; one of volumes stays in float32, as in torch.compile (H200, docs/experiments.md, 171).
LEAST_CHANNELS = {4: 3, 5: 4}
#: torch.compile leaves the order of memory as it is in graphs with so many nodes for each convolution
#: (`decide_layout_opt` in torch/_inductor/graph.py).
NODES_PER_CONVOLUTION = 300


def channels_last(
    graph: OpGraph,
    able: AbstractSet[str],
    stay: AbstractSet[str] = frozenset(),
    around_norms: bool = True,
    depthwise: Depthwise = "",
) -> OpGraph:
    """Returns the graph with the layout channels-last for the convolutions in `able` (names of nodes that a library can
    compute), if together they have enough elements, and for operators after them that support it. Nodes in `stay`,
    which PyTorch computes, are not changed.

    A 1×1 convolution without groups takes that layout only if elementwise work connects it with a larger convolution;
    otherwise it would need two copies, as between the depthwise ones of MobileNet. A convolution whose input already
    has channels last always takes it. The second kernel of a group norm recomputes the elementwise work before the
    norm; if other nodes read that work too, only with `around_norms`. `depthwise` says what computes depthwise
    convolutions with channels last, "library" or "kernel"; if it is "", they keep channels first.
    """
    single = [node for node in graph.nodes if operator(node) in CONVOLUTIONS and _has_single_channels(node, graph)]
    separate = {node.name for node in single if depthwise and _is_depthwise(node, graph)}
    left = {node.name for node in single} - separate
    convolutions = [
        node
        for node in graph.nodes
        if node.name not in stay | left and node.name in able | separate and _can_turn(node, graph)
    ]
    whole = sum(_elements(node, graph) for node in convolutions if not _is_pointwise(node, graph))
    chosen = {node.name for node in graph.nodes if node.name not in stay and _is_given(node, graph)}
    if whole >= LEAST_ELEMENTS:
        products = {node.name for node in convolutions if _is_pointwise(node, graph) and not _has_groups(node, graph)}
        others = {node.name for node in convolutions} - products
        chosen |= others | (products & _in_one_piece(graph, others | products, others))
    return _Rewrite(graph, chosen, stay, around_norms, depthwise).run() if chosen else graph


def _in_one_piece(graph: OpGraph, convolutions: set[str], some: set[str]) -> set[str]:
    """Returns the names of all values that are connected with a value in `some` through elementwise nodes, norms,
    poolings, `cat`s of channels and the nodes `convolutions`. An input of the graph connects only the convolutions that
    read it."""
    neighbours = defaultdict[str, set[str]](set)
    specs = {node.name: node.spec for node in graph.nodes}
    for node in graph.nodes:
        is_turned = node.name in convolutions
        for name in references(node)[: 1 if is_turned else None]:
            if is_turned or (name in specs and follows(node, specs[name])):
                neighbours[node.name].add(name)
                neighbours[name].add(node.name)
    connected, waiting = set[str](), list(some)
    while waiting:
        name = waiting.pop()
        if name not in connected:
            connected.add(name)
            waiting += neighbours[name]
    return connected


def in_channels_last(spec: TensorSpec) -> TensorSpec:
    """Returns `spec` in the memory order channels-last: the same sizes, dense, with the second dimension innermost."""
    sizes = [parse_size(size) for size in spec.shape]
    order = [0, *range(2, len(sizes)), 1]
    steps = {dim: shape_text(product([sizes[other] for other in order[at + 1 :]])) for at, dim in enumerate(order)}
    return TensorSpec(dtype=spec.dtype, shape=spec.shape, strides=tuple(steps[dim] for dim in range(len(sizes))))


def is_channels_last(spec: TensorSpec) -> bool:
    return len(spec.shape) in (4, 5) and spec.strides is not None and spec == in_channels_last(spec)


def has_convolutions(graph: OpGraph) -> bool:
    """Whether a node of the graph is a convolution."""
    return any(operator(node) in CONVOLUTIONS for node in graph.nodes)


def _is_short_depthwise(node: Node, graph: OpGraph) -> bool:
    """Whether the node is a depthwise convolution with windows so small that the generator unrolls them, with vector
    loads along the channels."""
    if not _is_depthwise(node, graph):
        return False
    positions = product([parse_size(size) for size in graph.spec(references(node)[1]).shape[2:]])
    return isinstance(positions, int) and positions <= LONGEST_WEIGHTED


def has_depthwise(graph: OpGraph) -> bool:
    """Whether a node of the graph is a depthwise convolution that can take the layout channels-last."""
    return any(_can_turn(node, graph) and _is_depthwise(node, graph) for node in graph.nodes)


def _can_turn(node: Node, graph: OpGraph) -> bool:
    """Whether the node is a convolution that can be changed to channels last: images and filters are contiguous with
    channels first, and there are enough channels."""
    if operator(node) not in CONVOLUTIONS or len(node.spec.shape) not in (4, 5):
        return False
    x, w = (spec_of(graph, operand) for operand in node.args[:2])
    if x is None or w is None or x.strides is not None or w.strides is not None or node.spec.strides is not None:
        return False
    least = LEAST_CHANNELS[len(node.spec.shape)]
    return all((fixed(size) or 0) >= least for size in (x.shape[1], node.spec.shape[1]))


def _is_depthwise(node: Node, graph: OpGraph) -> bool:
    """Whether the node is a depthwise convolution: it computes each channel alone, and is not transposed."""
    single = operator(node) in PLAIN_CONVOLUTIONS and _has_single_channels(node, graph)
    return single and argument(node, 6, "groups", 1) != 1


def _has_single_channels(node: Node, graph: OpGraph) -> bool:
    """Whether each filter of a convolution has a single channel."""
    w = spec_of(graph, node.args[1])
    return w is not None and w.shape[1] == "1"


def _is_pointwise(node: Node, graph: OpGraph) -> bool:
    w = spec_of(graph, node.args[1])
    return w is not None and all(size == "1" for size in w.shape[2:])


def _elements(node: Node, graph: OpGraph) -> int:
    """Returns the number of elements of a convolution's input or result, whichever has more."""
    x = spec_of(graph, node.args[0])
    return max(elements(x, graph.dims) if x is not None else 0, elements(node.spec, graph.dims))


def _is_given(node: Node, graph: OpGraph) -> bool:
    """Whether the input of a convolution already has channels last, but its result or its filter does not."""
    if operator(node) not in CONVOLUTIONS or len(node.spec.shape) not in (4, 5):
        return False
    x, w = (spec_of(graph, operand) for operand in node.args[:2])
    if x is None or w is None or not is_channels_last(x) or not (w.strides is None or is_channels_last(w)):
        return False
    return node.spec.strides is None or (is_channels_last(node.spec) and not _lies_last(w))


def _lies_last(spec: TensorSpec) -> bool:
    """Whether a dense tensor has channels last. A filter with one channel or one spatial element has both orders."""
    return is_channels_last(spec) or spec.shape[1] == "1" or all(size == "1" for size in spec.shape[2:])


def _is_compiled_last(graph: OpGraph) -> bool:
    """Whether torch.compile runs the graph's 2D convolutions with channels last (docs/judge.md). They may then be in
    TF32 where PyTorch's flags allow it, even if eager mode, with channels first, computes them in float32."""
    convolutions = [node for node in graph.nodes if operator(node) in CONVOLUTIONS and len(node.spec.shape) == 4]
    return len(graph.nodes) < NODES_PER_CONVOLUTION * len(convolutions) and not any(
        _has_groups(node, graph) for node in convolutions
    )


def _has_groups(node: Node, graph: OpGraph) -> bool:
    """Whether a convolution has several groups of more than one channel each."""
    groups = argument(node, CONVOLUTIONS[operator(node)].index("groups"), "groups")
    w = spec_of(graph, node.args[1])
    return groups not in (None, 1) and (w is None or w.shape[1] != "1")


class _Rewrite:
    """Rewrites the nodes of a graph in order; `chosen` has the convolutions to change to channels last.

    Values and nodes are given by name. `last`: the values that are written with channels last; `turned`: the copies
    with channels last; `copies`: the copy by (value, operator), where the operator is COPY or COPY_BACK; `readers`: the
    nodes that read a value; `again`: by value that is computed a second time, the second value, which later nodes read;
    `given`: the values that keep the memory order of the graph, because the graph returns them or PyTorch's own calls
    (`stay`) read them.
    """

    def __init__(
        self, graph: OpGraph, chosen: set[str], stay: AbstractSet[str], around_norms: bool, depthwise: Depthwise
    ) -> None:
        self.graph, self.chosen, self.compiled_last = graph, chosen, _is_compiled_last(graph)
        self.around_norms, self.depthwise = around_norms, depthwise
        self.given = {*graph.outputs, *(name for node in graph.nodes if node.name in stay for name in references(node))}
        self.nodes: list[Node] = []
        self.last: set[str] = set()
        self.copies: dict[tuple[str, str], str] = {}
        self.specs: dict[str, TensorSpec] = {value.name: value.spec for value in graph.inputs}
        self.turned: set[str] = set()
        self.again: dict[str, str] = {}
        self.readers: dict[str, set[str]] = defaultdict(set)
        for node in graph.nodes:
            for name in references(node):
                self.readers[name].add(node.name)

    def run(self) -> OpGraph:
        for node in self.graph.nodes:
            self._take(node)
        graph = self.graph
        return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(self.nodes), outputs=graph.outputs)

    def _take(self, node: Node) -> None:
        if node.name in self.chosen:
            self._convolution(node)
            return
        node = renamed(node, self.again)
        if any(name in self.last for name in references(node)[:1]):
            node = self._norm(node)
        read = {
            name: self._copied(name, COPY_BACK)
            for name in references(node)
            if name in self.last and not reads_any_order(node, self.specs[name], self.graph.dims)
        }
        changed = self._pooled(self._beside(renamed(node, read)))
        kept = [name for name in references(changed) if name in self.last or name in self.turned]
        if not any(follows(node, self.specs[name]) for name in kept):
            self._add(changed)
            return
        if node.name in self.given and not is_pool(node):
            self._add(changed)
            return
        self.last.add(node.name)
        self._add(replace(changed, spec=in_channels_last(node.spec)))
        if node.name in self.given:
            self._as_given(node)

    def _beside(self, node: Node) -> Node:
        """Returns the node. If one of its operands has channels last, copies in that order replace the other operands:
        all of them for a `cat` of channels; for an elementwise node, only those of which such a copy already exists.
        """
        if not any(name in self.last for name in references(node)):
            return node
        if joins_channels(node):
            return renamed(node, {name: self._copied(name, COPY) for name in references(node)})
        copies = {name: self.copies[name, COPY] for name in references(node) if (name, COPY) in self.copies}
        return renamed(node, copies) if copies and is_elementwise(node) else node

    def _pooled(self, node: Node) -> Node:
        """Returns the node. If it is a pooling that only convolutions with channels last read, and such a convolution
        also reads the operand of the pooling, both read the same channels-last copy of this operand.
        """
        readers = self.readers[node.name]
        if not is_pool(node) or not readers or not readers <= self.chosen:
            return node
        source = references(node)[0]
        if source in self.last or not self.readers[source] & self.chosen:
            return node
        if not follows(node, in_channels_last(self.specs[source])):
            return node
        return renamed(node, {source: self._copied(source, COPY)})

    def _norm(self, node: Node) -> Node:
        """Splits a norm over groups in two launches: adds the nodes that compute its moments, and returns the node that
        normalizes. Any other node is returned unchanged. Both launches compute the elementwise work before the norm, so
        that its result is not written to memory between them.
        """
        source = references(node)[0]
        two = norm_in_two(node, self.specs[source])
        for first in two[:-1]:
            self._add(first)
        return renamed(two[-1], {source: self._again(source, node.name)}) if len(two) > 1 else node

    def _again(self, name: str, norm: str) -> str:
        """Adds nodes that compute the value `name` a second time, for the second kernel of the norm `norm`. Returns the
        name of the second value; `name` itself if the value is not computed again.
        """
        if name in self.again:
            return self.again[name]
        node = next((node for node in self.nodes if node.name == name), None)
        if node is None or name not in self.last or not is_per_element(node) or not self._may_repeat(name, norm):
            return name
        read = {other: self._again(other, norm) for other in references(node)}
        self.again[name] = f"{name}{AGAIN}"
        self._add(replace(renamed(node, read), name=self.again[name]))
        self.last.add(self.again[name])
        return self.again[name]

    def _may_repeat(self, name: str, norm: str) -> bool:
        """Whether a value may be computed a second time: it is not in `given`, and only the norm and, with
        `around_norms`, elementwise nodes read it.
        """
        if name in self.given:
            return False
        if not self.around_norms:
            return len(self.readers[name]) <= 1
        others = self.readers[name] - {norm}
        return all(is_per_element(node) for node in self.graph.nodes if node.name in others)

    def _convolution(self, node: Node) -> None:
        given = is_channels_last(self.graph.spec(references(node)[0]))
        read = {operand: self._copied(operand, COPY) for operand in references(node)[:2]}
        keeps = given or (self.compiled_last and len(node.spec.shape) == 4)
        op = node.op if keeps else operator(node) + TURNED
        if self.depthwise == "kernel" and _is_short_depthwise(node, self.graph):
            op = operator(node) + BY_CHANNELS
            filters = references(node)[1]
            read[filters] = self._by_channels(filters)
        self._add(replace(renamed(node, read), op=op, spec=in_channels_last(node.spec)))
        if is_channels_last(node.spec):
            return
        self.last.add(node.name)
        if node.name in self.given:
            self._as_given(node)

    def _by_channels(self, name: str) -> str:
        """Returns the name of a copy of the depthwise filter `name` with channels innermost; adds the copy if there is
        none yet."""
        if (name, BY_CHANNELS) not in self.copies:
            spec = self.specs[name]
            channels, _, *kernel = map(parse_size, spec.shape)
            steps = [product([channels, *kernel[at + 1 :]]) for at in range(len(kernel))]
            strides = ("1", shape_text(product([channels, *kernel])), *map(shape_text, steps))
            new = f"{name}_{COPY}_by_channels"
            spec = TensorSpec(dtype=spec.dtype, shape=spec.shape, strides=strides)
            self._add(Node(name=new, op=COPY, args=(f"%{name}",), spec=spec))
            self.copies[name, BY_CHANNELS] = new
        return self.copies[name, BY_CHANNELS]

    def _as_given(self, node: Node) -> None:
        """Keeps the graph's memory order for the value of `node`, which must be in `given`: renames the node that was
        added last and computes the value with channels last, and adds a copy with the original name and memory order.
        """
        inner = self.nodes.pop()
        name = f"{node.name}_{COPY}"
        self.last.discard(node.name)
        self._add(replace(inner, name=name))
        self.copies[node.name, COPY] = name
        self.turned.add(name)
        self._add(Node(name=node.name, op=COPY_BACK, args=(f"%{name}",), spec=node.spec))

    def _add(self, node: Node) -> None:
        self.nodes.append(node)
        self.specs[node.name] = node.spec

    def _copied(self, name: str, op: str) -> str:
        """Returns the name of a copy of the value `name`, with channels last if `op` is COPY, with channels first if it
        is COPY_BACK; adds the copy if there is none yet. For COPY, returns `name` itself if the value already has
        channels last.
        """
        if op == COPY and (name in self.last or _lies_last(self.specs[name])):
            return name
        if (name, op) not in self.copies:
            spec = TensorSpec(dtype=self.specs[name].dtype, shape=self.specs[name].shape)
            spec = in_channels_last(spec) if op == COPY else spec
            new = f"{name}_{op.replace('.', '_')}"
            self._add(Node(name=new, op=op, args=(f"%{name}",), spec=spec))
            self.copies[name, op] = new
            if op == COPY:
                self.turned.add(new)
        return self.copies[name, op]
