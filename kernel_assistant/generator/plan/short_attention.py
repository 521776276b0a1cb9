"""Replaces attention with few queries, as when a language model generates a token, by a kernel of the generator. CUDA
only; see docs/language_models.md.

Attention with many queries is left to PyTorch, which uses tensor cores for it.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.literals import decoded
from kernel_assistant.generator.ir.sizes import fixed
from kernel_assistant.generator.library.attention import OPERATOR
from kernel_assistant.generator.loops.attention import ATTENTION, has_whole_rows
from kernel_assistant.generator.loops.strided import Resolver
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.generator.print.cuda.templates.attention import Tile
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import DTYPE_BYTES, Operand

#: Most queries that read one head's keys.
MOST_ROWS = 8
DTYPES = ("f32", "bf16", "f16")


def with_short_attention(graph: OpGraph, stay: frozenset[str] = frozenset()) -> OpGraph:
    """Returns the graph with each attention of few queries, except for nodes in `stay`, replaced by a `ka_attention`
    node; the graph itself if no attention can be replaced."""
    chosen = [node for node in graph.nodes if node.op == OPERATOR and node.name not in stay]
    values = Resolver(graph)
    replaced: dict[str, list[Node]] = {}
    for node in chosen:
        try:
            replaced[node.name] = _written(NodeWriter(graph, node), values)
        except Unsupported:
            continue
    if not replaced:
        return graph
    nodes = [new for node in graph.nodes for new in replaced.get(node.name, [node])]
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def _written(writer: NodeWriter, values: Resolver) -> list[Node]:
    """Returns the nodes that replace an attention. Raises Unsupported if the kernel cannot compute it."""
    node = writer.node
    q, k, v = node.args[:3]
    mask, dropout = writer.argument(3, "attn_mask"), writer.argument(4, "dropout_p", 0.0)
    scale = node.kwargs.get("scale")
    grouped, causal = bool(node.kwargs.get("enable_gqa")), bool(writer.argument(5, "is_causal", False))
    _check(writer, grouped)
    if dropout or not isinstance(decoded(scale, node.op), int | float | None):
        raise Unsupported(f"{OPERATOR} with dropout, or a scale that is computed")
    views = [values.view_or_none(one) for one in (k, v)]
    if not all(view is not None and has_whole_rows(view) for view in views):
        # A part of a cache: PyTorch's attention reads it where it lies.
        raise Unsupported(f"{OPERATOR} of keys that would be copied")
    if values.view_or_none(q) is None:
        q = writer.copy(q)
    if mask is not None:
        mask = _mask(writer, values, mask)
    made = Node(name=node.name, op=ATTENTION, args=(q, k, v, mask, scale, causal), spec=node.spec)
    return [*writer.nodes, made]


def _check(writer: NodeWriter, grouped: bool) -> None:
    """Raises Unsupported if the kernel does not support the sizes or dtypes of the attention."""
    specs = [writer.spec(one) for one in writer.node.args[:3]]
    of_q, of_k, of_v = (spec.shape for spec in specs)
    dtypes = {spec.dtype for spec in (*specs, writer.node.spec)}
    if {len(shape) for shape in (of_q, of_k, of_v)} != {4} or len(dtypes) > 1 or specs[0].dtype not in DTYPES:
        raise Unsupported(f"{OPERATOR} of these dtypes or dimensions")
    heads, queries, width = (fixed(size) for size in of_q[1:])
    key_heads = fixed(of_k[1])
    if not heads or not queries or not width or not key_heads:
        raise Unsupported(f"{OPERATOR} of free sizes")
    fitting = of_k == of_v and of_k[0] == of_q[0] and of_k[3] == of_q[3]
    if not fitting or heads % key_heads or (heads != key_heads and not grouped):
        raise Unsupported(f"{OPERATOR} of {heads} heads by {key_heads}")
    tile = Tile(heads // key_heads * queries, width, DTYPE_BYTES[specs[0].dtype])
    if tile.rows > MOST_ROWS or tile.obstacle():
        raise Unsupported(f"{OPERATOR} of {tile.rows} queries of {width} elements")


def _mask(writer: NodeWriter, values: Resolver, mask: Operand) -> Operand:
    spec, (q, k) = writer.spec(mask), map(writer.spec, writer.node.args[:2])
    whole = (*q.shape[:3], k.shape[2])
    fitting = all(own in ("1", size) for own, size in zip(spec.shape[::-1], whole[::-1], strict=False))
    if spec.dtype not in ("b1", *DTYPES) or len(spec.shape) > len(whole) or not fitting:
        raise Unsupported(f"{OPERATOR} with a mask of {spec.dtype} {spec.shape}")
    return mask if values.view_or_none(mask) is not None else writer.copy(mask)
