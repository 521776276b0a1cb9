"""Defines the node of an attention with few queries, and finds it in a part of a graph (one kernel's share). CUDA only;
see docs/language_models.md."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.operators import operator
from kernel_assistant.generator.ir.sizes import known_size
from kernel_assistant.generator.loops.strided import VIEWS, Resolver, View
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import Operand

#: (q, k, v, mask, scale, causal): q [batch, heads, queries, width], k and v [batch, key heads, keys, width]; a mask
#: that can be expanded to [batch, heads, queries, keys], or None; no scale means width^-1/2. Query head h reads key
#: head h · key heads // heads.
ATTENTION = "ka_attention"


@dataclass(frozen=True, slots=True)
class ShortAttention:
    """The `ka_attention` node of a part (one kernel's share of a graph). `q`, `k`, `v` and `mask` are views of the
    part's inputs, `out` is its result; the comment at ATTENTION lists their dimensions. `mask` has stride 0 in
    dimensions in which it is expanded."""

    node: Node
    q: View
    k: View
    v: View
    mask: View | None
    out: View
    scale: Operand
    causal: bool

    @property
    def queries(self) -> int:
        return known_size(self.q.sizes[2])

    @property
    def width(self) -> int:
        return known_size(self.q.sizes[3])

    @property
    def group(self) -> int:
        """The number of query heads for each key head."""
        return known_size(self.q.sizes[1]) // known_size(self.k.sizes[1])

    @property
    def rows(self) -> int:
        """The number of queries that read the keys of one key head."""
        return self.group * self.queries


def as_attention(graph: OpGraph) -> ShortAttention | None:
    """Returns the attention that `graph`, one kernel's share of a graph, computes. Returns None if it computes anything
    else, or if the attention's kernel could not read an operand without a copy."""
    heads = [node for node in graph.nodes if node.op == ATTENTION]
    if len(heads) != 1 or graph.outputs != (heads[0].name,):
        return None
    head, values = heads[0], Resolver(graph)
    if any(operator(node) not in VIEWS for node in graph.nodes if node is not head):
        return None
    mask, scale, causal = head.args[3:]
    try:
        q, k, v = (values.view(one) for one in head.args[:3])
        added = None if mask is None else expanded(values.view(mask), (*q.sizes[:3], k.sizes[2]))
    except Unsupported:
        return None
    if not (has_whole_rows(k) and has_whole_rows(v)):
        return None
    if any(view.root not in values.given for view in (q, k, v, *([added] if added else []))):
        return None
    return ShortAttention(head, q, k, v, added, values.buffer(head.name), scale, bool(causal))


def expanded(view: View, sizes: tuple[object, ...]) -> View:
    """Returns `view` expanded to `sizes`, with stride 0 in the new dimensions. Raises Unsupported if that is
    impossible."""
    missing = len(sizes) - len(view.sizes)
    own = (*[1] * missing, *view.sizes)
    strides = (*[0] * missing, *view.strides)
    if missing < 0 or any(size not in (1, wanted) for size, wanted in zip(own, sizes, strict=True)):
        raise Unsupported("a mask of other sizes")
    steps = tuple(0 if size == 1 else stride for size, stride in zip(own, strides, strict=True))
    return View(view.root, view.dtype, sizes, steps)  # type: ignore[arg-type]


def has_whole_rows(view: View) -> bool:
    """Whether the elements of each row of the keys or values `view` are contiguous, so that the kernel can read them
    without a copy."""
    return view.strides[-1] == 1
