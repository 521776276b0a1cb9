"""Replaces attention that is written out in an exported graph by `scaled_dot_product_attention`.

    softmax(q @ kᵀ · scale + mask, -1) @ v

The scale is a number before the mask. A mask is added, or fills with a large negative number; several combine. A mask
that is causal and does not depend on the inputs becomes `is_causal`, which the fastest kernels need. No other operator
may read the probabilities, and q, k and v must have the same leading sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from ..graph.constant_nodes import constant
from ..graph.operators import is_identity

#: A filled or added value at or below this makes a probability zero.
DROPPED = -1e4

_aten = torch.ops.aten
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_CASTS = ("_to_copy.default", "to.dtype")


@dataclass(frozen=True)
class Scores:
    """The scores q @ kt · scale of an attention. `masks` are applied to them in order, as pairs (kind, node): "add"
    adds the node's values, "drop" removes the scores where the node is true, "keep" those where it is false."""

    q: Node
    kt: Node
    scale: float = 1.0
    masks: tuple[tuple[str, Node], ...] = ()


@dataclass(frozen=True)
class Attention:
    """An attention that a graph writes out as softmax(`scores`) @ `v`: `output` is the node of the product with v,
    `softmax` the node of the softmax."""

    scores: Scores
    v: Node
    softmax: Node
    output: Node


@dataclass(frozen=True)
class FusedModule:
    """A module with the same inputs and outputs as the exported module; `write` is the code to put into the user's
    file."""

    module: GraphModule
    write: str


def fuse(program: ExportedProgram, path: str) -> FusedModule | None:
    """Returns the program as a module in which `scaled_dot_product_attention` replaces every attention that is written
    out; None if there is none. The module shares the program's parameters; `path` is the user's file, whose line
    numbers `write` names."""
    exported = program.module()
    module = GraphModule(exported, exported.graph)
    for node in list(module.graph.nodes):
        if node.op == "call_module" or _name(node) == "_assert_tensor_metadata.default":
            module.graph.erase_node(node)  # checks that torch.export added, which the original does not make
        elif _name(node) == "einsum.default":
            _einsum_as_product(module.graph, node)
    matches = list(find(module.graph))
    if not matches:
        return None
    writes = [_replace(module, match) for match in matches]
    module.graph.eliminate_dead_code()
    module.recompile()
    lines = [line for line in (_line(match.softmax, path) for match in matches) if line]
    where = f"  # line {', '.join(dict.fromkeys(lines))}" if lines else ""
    return FusedModule(module, writes[0] + where)


def find(graph: Graph) -> Iterator[Attention]:
    """Yields every attention in the graph that is written out as a softmax of masked scores and a product with v."""
    for node in graph.nodes:
        if not _is_product(node):
            continue
        softmax = _through(node.args[0])
        if softmax is None or not _is_softmax(softmax):
            continue
        scores, v = _scores(softmax.args[0]), node.args[1]
        if scores is not None and _fits(scores, v):
            yield Attention(scores, v, softmax, node)


def _einsum_as_product(graph: Graph, node: Node) -> None:
    """Replaces an einsum `b h i d, b h j d -> b h i j` or `b h i j, b h j d -> b h i d` in the graph by matmul; other
    equations stay."""
    match = re.fullmatch(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)", str(node.args[0]).replace(" ", ""))
    operands: Any = node.args[1]
    if match is None:
        return
    left, right, out = match.groups()
    lead, (one, other) = left[:-2], operands
    if any(len(set(sizes)) < max(2, len(sizes)) for sizes in (left, right, out)):
        return
    with graph.inserting_before(node):
        if right == lead + out[-1] + left[-1] and out == left[:-1] + out[-1]:
            value = other.meta["val"].transpose(-2, -1)
            other = graph.call_function(_aten.transpose.int, (other, -2, -1))
            other.meta["val"] = value
        elif right != lead + left[-1] + out[-1] or out != left[:-1] + out[-1]:
            return
        product = graph.call_function(_aten.matmul.default, (one, other))
    product.meta = dict(node.meta)
    node.replace_all_uses_with(product)
    graph.erase_node(node)


def _scores(node: Any) -> Scores | None:
    node = _through(node)
    if node is None:
        return None
    if _is_product(node):
        return Scores(*node.args[:2])
    name = _name(node)
    if name in ("mul.Tensor", "div.Tensor"):
        return _scaled(node, name)
    if name == "add.Tensor" and not node.kwargs:
        for value, mask in (node.args[:2], node.args[1::-1]):
            inner = _scores(value) if isinstance(mask, Node) else None
            if inner is not None:
                return replace(inner, masks=(*inner.masks, ("add", mask)))
    if name == "masked_fill.Scalar" and _drops(node.args[2]):
        inner = _scores(node.args[0])
        return inner and replace(inner, masks=(*inner.masks, ("drop", node.args[1])))
    if name == "where.ScalarOther" and _drops(node.args[2]):
        inner = _scores(node.args[1])
        return inner and replace(inner, masks=(*inner.masks, ("keep", node.args[0])))
    return None


def _scaled(node: Node, name: str) -> Scores | None:
    value, factor = node.args[:2]
    if name == "mul.Tensor" and not isinstance(value, Node):
        value, factor = factor, value
    if not isinstance(factor, (int, float)) or not factor:
        return None
    inner = _scores(value)
    if inner is None or inner.masks:
        return None
    return replace(inner, scale=inner.scale * factor if name == "mul.Tensor" else inner.scale / factor)


def _through(node: Any) -> Node | None:
    """Follows the graph backwards from `node` past copies, casts between floating dtypes, and dropout that does
    nothing. Returns the first node of another kind; None if it, or a node on the way, has more than one reader."""
    while isinstance(node, Node) and len(node.users) == 1:
        if node.op != "call_function" or not (is_identity(node) or _is_float_cast(node)):
            return node
        node = node.args[0]
    return None


def _fits(scores: Scores, v: Any) -> bool:
    if not isinstance(v, Node):
        return False
    q, kt, values = (node.meta["val"] for node in (scores.q, scores.kt, v))
    leads = {tuple(str(size) for size in value.shape[:-2]) for value in (q, kt, values)}
    return (
        len(leads) == 1
        and q.dim() in (2, 3, 4)
        and q.dtype in _FLOATS
        and q.dtype == kt.dtype == values.dtype
        and all(mask.meta["val"].dim() <= q.dim() for _, mask in scores.masks)
    )


def _replace(module: GraphModule, match: Attention) -> str:
    """Inserts the fused operator in place of the matched nodes. Returns a line of Python that does the same."""
    graph, scores = module.graph, match.scores
    rank, width = scores.q.meta["val"].dim(), scores.q.meta["val"].shape[-1]
    causal = _is_causal(module, scores)
    with graph.inserting_before(match.output):
        k = graph.call_function(_aten.transpose.int, (scores.kt, -2, -1))
        mask = None if causal or not scores.masks else _mask(graph, scores, rank)
        operands = [_with_rank(graph, node, rank, 4) for node in (scores.q, k, match.v)]
        fused: Node = graph.call_function(
            _aten.scaled_dot_product_attention.default, (*operands, mask, 0.0, causal), {"scale": scores.scale}
        )
        for _ in range(4 - rank):
            fused = graph.call_function(_aten.squeeze.dim, (fused, 0))
    match.output.replace_all_uses_with(fused)
    options = ", is_causal=True" if causal else ", attn_mask=mask" if scores.masks else ""
    if not isinstance(width, int) or not math.isclose(scores.scale, width**-0.5, rel_tol=1e-6):
        options += f", scale={scores.scale:.6g}"
    return f"F.scaled_dot_product_attention(q, k, v{options})"


def _mask(graph: Graph, scores: Scores, rank: int) -> Node:
    """Inserts nodes that combine all masks into one, and returns it: a boolean mask (True keeps a score) if no mask is
    of the kind "add", otherwise a mask to add, in the dtype of q."""
    adds = [node for kind, node in scores.masks if kind == "add"]
    keeps = [
        node if kind == "keep" else graph.call_function(_aten.logical_not.default, (node,))
        for kind, node in scores.masks
        if kind != "add"
    ]
    kept = _joined(graph, keeps, _aten.logical_and.default)
    added = _joined(graph, adds, _aten.add.Tensor)
    if added is None:
        mask = kept
    else:
        mask = graph.call_function(_aten.to.dtype, (added, scores.q.meta["val"].dtype))
        if kept is not None:
            mask = graph.call_function(_aten.where.ScalarOther, (kept, mask, -math.inf))
    assert mask is not None
    dims = max(node.meta["val"].dim() for _, node in scores.masks)
    return _with_rank(graph, mask, dims, 2 if dims <= 2 else dims + 4 - rank)


def _joined(graph: Graph, nodes: list[Node], operator: Any) -> Node | None:
    joined = nodes[0] if nodes else None
    for node in nodes[1:]:
        joined = graph.call_function(operator, (joined, node))
    return joined


def _with_rank(graph: Graph, node: Node, rank: int, wanted: int) -> Node:
    for _ in range(wanted - rank):
        node = graph.call_function(_aten.unsqueeze.default, (node, 0))
    return node


def _is_causal(module: GraphModule, scores: Scores) -> bool:
    """Whether there is one mask, constant and square, that keeps the diagonal and the elements below it."""
    if len(scores.masks) != 1:
        return False
    kind, node = scores.masks[0]
    value = constant(module, node, {})
    if value is None or value.dim() < 2 or value.shape[-1] != value.shape[-2] or value.numel() != value.shape[-1] ** 2:
        return False
    square = value.reshape(value.shape[-2:])
    if kind == "add":
        kept = square == 0
        if not bool((kept | (square <= DROPPED)).all()):
            return False
    else:
        kept = square.bool() if kind == "keep" else ~square.bool()
    return torch.equal(kept, torch.ones_like(kept).tril())


def _is_product(node: Node) -> bool:
    return _name(node) in ("matmul.default", "bmm.default", "mm.default")


def _is_softmax(node: Node) -> bool:
    rank = node.meta["val"].dim()
    return _name(node) in ("softmax.int", "_softmax.default") and node.args[1] in (-1, rank - 1)


def _is_float_cast(node: Node) -> bool:
    if _name(node) not in _CASTS or not isinstance(node.args[0], Node):
        return False
    return all(value.meta["val"].dtype in _FLOATS for value in (node, node.args[0]))


def _drops(value: Any) -> bool:
    return isinstance(value, (int, float)) and value <= DROPPED


def _name(node: Node) -> str:
    return str(node.target).removeprefix("aten.") if node.op == "call_function" else ""


def _line(node: Node, path: str) -> str:
    """Returns the line number of a node in the user's file `path`; "" for a node from another file."""
    locations = re.findall(r'File "(.+?)", line (\d+)', node.meta.get("stack_trace") or "")
    return next((line for file, line in reversed(locations) if file == path), "")
