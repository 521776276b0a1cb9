"""Replaces `scaled_dot_product_attention` by two products with a softmax between them. Used for modules in which the
generator could otherwise write no kernel.

On CUDA a library computes the products. On the CPU kernels of the generator compute them as sums, but only for tiny
attentions: for larger ones PyTorch's own attention is faster. See docs/heavy_operators.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.literals import decoded
from kernel_assistant.generator.ir.sizes import divide, mul, parse_size, shape_text, size_operands, size_value
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import Operand

OPERATOR = "scaled_dot_product_attention"
#: Most scores of a head, queries times keys, that are sums on the CPU: of eager's time 1.4 to 2.4 times at 64, 0.9 to
#: 1.2 at 128, 0.3 to 1.4 at 256 (experiment 119).
MOST_SCORES = 128


def with_attention_written(graph: OpGraph, target: str) -> OpGraph:
    """Returns the graph with each attention replaced by two products and a softmax; the graph itself if it has no
    attention. Raises Unsupported if an attention cannot be replaced."""
    if not any(node.op == OPERATOR for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _Attention.read(NodeWriter(graph, node), target).nodes() if node.op == OPERATOR else [node]
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


@dataclass(frozen=True, slots=True)
class _Attention:
    """The operands of one attention: q [..., L, E], k [..., S, E], v [..., S, V].

    `group` is the number of heads of q that share one head of k and v. `by_library` is True if a library computes the
    products.
    """

    writer: NodeWriter
    q: Operand
    k: Operand
    v: Operand
    mask: Operand
    causal: bool
    scale: float
    group: int
    by_library: bool

    @staticmethod
    def read(writer: NodeWriter, target: str) -> _Attention:
        node = writer.node
        q, k, v = node.args[:3]
        queries, keys = (size_value(parse_size(writer.spec(one).shape[-2]), writer.graph.dims) for one in (q, k))
        if target == "cpu" and queries * keys > MOST_SCORES:
            raise Unsupported(f"{OPERATOR} of {queries} × {keys} scores")
        mask, dropout = writer.argument(3, "attn_mask"), writer.argument(4, "dropout_p", 0.0)
        if dropout:
            raise Unsupported(f"{OPERATOR} with dropout")
        width = parse_size(writer.spec(q).shape[-1])
        scale = decoded(node.kwargs.get("scale"), node.op)
        if scale is None:
            if not isinstance(width, int) or width < 1:
                raise Unsupported(f"{OPERATOR} of heads of free width")
            scale = width**-0.5
        if isinstance(scale, str | list):
            raise Unsupported(f"{OPERATOR} with a scale of {scale!r}")
        group = _group(writer, q, k, v) if node.kwargs.get("enable_gqa") else 1
        causal = bool(writer.argument(5, "is_causal", False))
        return _Attention(writer, q, k, v, mask, causal, float(scale), group, target == "cuda")

    def nodes(self) -> list[Node]:
        rows = self.writer.node.spec.shape[:-1]
        whole = (*rows, self._shape(self.k)[-2])
        scores = self._product(self._folded(self.q), self.k, self._fold(whole), True)
        masked = self._masked(self._unfolded(scores, whole), whole)
        shares = self._add("softmax.int", masked, -1, shape=whole)
        if self.mask is not None:
            # Like PyTorch: a row without any key has no share in any.
            top = self._add("amax", masked, [-1], True, shape=(*rows, "1"))
            none = self._add("eq.Scalar", top, "-inf", shape=(*rows, "1"), dtype="b1")
            shares = self._add("masked_fill.Scalar", shares, none, 0, shape=whole)
        mixed = (*rows, self._shape(self.v)[-1])
        product = self._product(self._folded(shares, whole), self.v, self._fold(mixed), False)
        product = self._unfolded(product, mixed)
        written = self.by_library and self.writer.node.spec.strides is None
        return self.writer.ended(product) if written else self.writer.end("ka_copy", product)

    def _product(self, left: Operand, right: Operand, shape: tuple[str, ...], turned: bool) -> str:
        """Adds nodes for the product left [..., M, K] · right [..., K, N]; returns the operand that names its result.
        If `turned`, `right` is [..., N, K] and the result is multiplied by `scale`.
        """
        given = self._shape(right)
        if self.by_library:
            if not turned:
                return self._add("matmul", left, right, shape=shape)
            right = self._add("transpose.int", right, -2, -1, shape=(*given[:-2], given[-1], given[-2]))
            # The factor is the library's: a product of half type may be too large without it.
            return self._add("ka_matmul", left, right, self.scale, shape=shape)
        of_left = self._shape(left)
        column = (*of_left[:-1], "1", of_left[-1]) if turned else (*of_left, "1")
        row = (*given[:-2], "1", *given[-2:])
        inner = (*shape, of_left[-1]) if turned else (*shape[:-1], of_left[-1], shape[-1])
        left = self._add("unsqueeze", left, -2 if turned else -1, shape=column)
        terms = self._add("mul.Tensor", left, self._add("unsqueeze", right, -3, shape=row), shape=inner)
        total = self._add("sum.dim_IntList", terms, [-1 if turned else -2], shape=shape)
        return self._add("mul.Tensor", total, self.scale, shape=shape) if turned else total

    def _shape(self, operand: Operand) -> tuple[str, ...]:
        known = {f"%{node.name}": node.spec.shape for node in self.writer.nodes}
        return known[str(operand)] if str(operand) in known else self.writer.spec(operand).shape

    def _masked(self, scores: str, shape: tuple[str, ...]) -> str:
        if self.causal:
            rows, columns = shape[-2:]
            row = self._add("arange", *size_operands([rows]), shape=(rows,), dtype="i64")
            row = self.writer.view(row, (rows, "1"), "i64")
            column = self._add("arange", *size_operands([columns]), shape=(columns,), dtype="i64")
            later = self._add("gt.Tensor", column, row, shape=(rows, columns), dtype="b1")
            return self._add("masked_fill.Scalar", scores, later, "-inf", shape=shape)
        if self.mask is None:
            return scores
        spec = self.writer.spec(self.mask)
        if spec.dtype == "b1":
            dropped = self._add("logical_not", self.mask, shape=spec.shape, dtype="b1")
            return self._add("masked_fill.Scalar", scores, dropped, "-inf", shape=shape)
        return self._add("add.Tensor", scores, self.mask, shape=shape)

    @property
    def _dtype(self) -> str:
        """The dtype of intermediate values: the result's if a library computes the products, otherwise at least
        float32.
        """
        return self.writer.node.spec.dtype if self.by_library else self.writer.dtype

    def _add(self, op: str, *args: Operand, shape: tuple[str, ...], dtype: str = "") -> str:
        return self.writer.typed(dtype or self._dtype, op, *args, shape=shape)

    def _fold(self, shape: tuple[str, ...]) -> tuple[str, ...]:
        """Changes the shape [..., heads, rows, width] to [..., heads/group, group·rows, width], so that one product
        computes all heads that share a head of k and v.
        """
        if self.group == 1:
            return shape
        *outer, heads, rows, width = shape
        fewer = divide(parse_size(heads), self.group)
        assert fewer is not None
        return (*outer, shape_text(fewer), shape_text(mul(self.group, parse_size(rows))), width)

    def _folded(self, value: Operand, shape: tuple[str, ...] = ()) -> Operand:
        shape = shape or self._shape(value)
        return value if self.group == 1 else self._view(value, self._fold(shape))

    def _unfolded(self, value: str, shape: tuple[str, ...]) -> str:
        return value if self.group == 1 else self._view(value, shape)

    def _view(self, value: Operand, shape: tuple[str, ...]) -> str:
        return self.writer.view(value, shape, self._dtype)


def _group(writer: NodeWriter, q: Operand, k: Operand, v: Operand) -> int:
    shapes = [writer.spec(operand).shape for operand in (q, k, v)]
    heads = [parse_size(shape[-3]) if len(shape) > 2 else 0 for shape in shapes]
    many, few, last = heads
    if not isinstance(many, int) or not isinstance(few, int) or last != few or few < 1 or many % few:
        raise Unsupported(f"{OPERATOR} of {many} heads by {few} and {last}")
    if many != few and any(shape[:-3] != shapes[0][:-3] for shape in shapes):
        raise Unsupported(f"{OPERATOR} of groups of heads with repeated leading dimensions")
    return many // few
