"""Adds copies of operands whose memory layout a library or a scan cannot read. Kernels of the generator write these
copies in the required order.
"""

from __future__ import annotations

from collections.abc import Collection

from kernel_assistant.generator.ir.operators import COPY, FREE, operator
from kernel_assistant.generator.library.convolutions import CONVOLUTIONS
from kernel_assistant.generator.library.library import library_nodes
from kernel_assistant.generator.library.matrices import SPREAD, inner_name, with_matrices
from kernel_assistant.generator.library.products import PRODUCTS
from kernel_assistant.generator.plan.channels_last import Depthwise, channels_last
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import Operand

Groups = tuple[tuple[str, ...], ...]


def with_readable_operands(
    graph: OpGraph,
    target: str,
    stay: frozenset[str] = frozenset(),
    last: bool = True,
    around_norms: bool = True,
    depthwise: Depthwise = "",
) -> tuple[OpGraph, Groups]:
    """Returns (graph, groups): the graph with copies of the operands of those products and convolutions that a library
    can compute only then (except nodes in `stay`), and the names of the nodes of each library call. With `last`,
    convolutions are changed to channels last on CUDA; for `around_norms` and `depthwise` see `channels_last`.
    """
    groups = library_nodes(graph, target)
    able = {name for group in groups for name in group} if last else set[str]()
    turned = channels_last(graph, able, stay, around_norms, depthwise) if target == "cuda" else graph
    if turned is not graph:
        graph, groups = turned, library_nodes(turned, target)
    listed = {name for group in groups for name in group}
    calls = {
        node.name
        for node in graph.nodes
        if operator(node) in (*PRODUCTS, *CONVOLUTIONS) and node.name not in listed | stay and target == "cuda"
    }
    if not calls:
        return graph, groups
    # Copies only where they help, and first of what is read through views alone.
    helped = calls & _listed(with_copies(graph, calls), target)
    strided = calls - helped
    strided &= _listed(with_copies(graph, strided, strided), target) if strided else set()
    apart = {node.name for node in graph.nodes if node.name in calls - helped - strided and operator(node) in SPREAD}
    if apart:
        products = apart | {inner_name(name) for name in apart}
        matrix_products = products & _listed(with_copies(with_matrices(graph, apart), products, products), target)
        if matrix_products:
            graph = with_matrices(graph, {name for name in apart if matrix_products & {name, inner_name(name)}})
            strided |= matrix_products
    if not helped | strided:
        return graph, groups
    copied = with_copies(graph, helped | strided, strided)
    return copied, library_nodes(copied, target)


def _listed(graph: OpGraph, target: str) -> set[str]:
    return {name for group in library_nodes(graph, target) for name in group}


def with_copies(graph: OpGraph, calls: set[str], strided: Collection[str] = ()) -> OpGraph:
    """Returns the graph in which the nodes `calls` read copies of those operands that are views (reshapes, slices, …).
    Nodes in `strided` also read copies of other operands that are not contiguous in memory.
    """
    known = {node.name: node for node in graph.nodes}
    nodes: list[Node] = []
    renamed: dict[tuple[str, bool], str] = {}

    def copied(name: str, any_order: bool) -> str:
        """Returns the name of a copy of the value `name`; `name` itself if it needs no copy. For a transposed matrix,
        the matrix is copied, and the copy is then transposed.
        """
        node, spec = known.get(name), graph.spec(name)
        free = node is not None and _is_free(node, known)
        if not free and not (any_order and spec.strides is not None):
            return name
        if (name, any_order) not in renamed:
            new = f"{name}_{COPY}" + ("_dense" if any_order else "")
            if node is not None and free and _swaps_last(node):
                source = copied(str(node.args[0])[1:], any_order)
                nodes.append(Node(name=new, op=node.op, args=(f"%{source}", *node.args[1:]), spec=node.spec))
            else:
                plain = TensorSpec(dtype=spec.dtype, shape=spec.shape)
                nodes.append(Node(name=new, op=COPY, args=(f"%{name}",), spec=plain))
            renamed[name, any_order] = new
        return renamed[name, any_order]

    def read(operand: Operand, any_order: bool) -> Operand:
        if isinstance(operand, list):
            return [read(item, any_order) for item in operand]  # type: ignore[misc]
        named = isinstance(operand, str) and operand.startswith("%")
        return f"%{copied(str(operand)[1:], any_order)}" if named else operand

    for node in graph.nodes:
        if node.name in calls:
            args = tuple(read(operand, node.name in strided) for operand in node.args)
            node = Node(name=node.name, op=node.op, args=args, kwargs=node.kwargs, spec=node.spec)
        nodes.append(node)
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def with_storage(graph: OpGraph) -> OpGraph:
    """Returns the graph in which each `as_strided` reads a copy of its operand if this is a view, because views have no
    buffers of their own. The copy has the strides that the operand has in PyTorch.
    """
    known = {node.name: node for node in graph.nodes}
    nodes: list[Node] = []
    for node in graph.nodes:
        source = known.get(str(node.args[0])[1:]) if operator(node) == "as_strided" else None
        if source is not None and _is_free(source, known):
            copy = Node(name=f"{node.name}_{COPY}", op=COPY, args=(node.args[0],), spec=source.spec)
            nodes.append(copy)
            args = (f"%{copy.name}", *node.args[1:])
            node = Node(name=node.name, op=node.op, args=args, kwargs=node.kwargs, spec=node.spec)
        nodes.append(node)
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def _is_free(node: Node, known: dict[str, Node]) -> bool:
    if operator(node) == "getitem":
        source = known.get(str(node.args[0])[1:])
        return source is not None and operator(source) in FREE
    return operator(node) in FREE


def _swaps_last(node: Node) -> bool:
    rank = len(node.spec.shape)
    if operator(node) == "t":
        return rank == 2
    dims = {dim % rank for dim in node.args[1:3] if isinstance(dim, int)} if rank else set()
    return operator(node) in ("transpose", "swapaxes") and dims == {rank - 1, rank - 2}
