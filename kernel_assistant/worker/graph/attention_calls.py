"""Changes calls of attention in an exported graph to what the module calls outside of torch.export. In an export,
libraries such as transformers write out what they otherwise leave to `scaled_dot_product_attention`: a mask that is
causal or keeps everything, and keys and values that are repeated for groups of heads. Both keep PyTorch from its
fastest kernels.

| operands | become |
|---|---|
| a mask that no input changes and that keeps everything | no mask |
| a mask that no input changes, keeps key j for query i if j ≤ i, and is square | `is_causal=True` |
| no mask, and each head of keys and values repeated for its group of query heads | `enable_gqa=True` |

A mask drops a score by False, by -inf, or by a number as low as float32's lowest. Such a number differs from -inf only
in a row without other scores. In the masks above each row keeps a score, next to which the weight of a dropped one is
exactly 0, unless scores are as large as that number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from .noted_values import VIEWS, renewed
from .repeated_heads import unrepeated
from .uniform_values import UniformValues
from .unused_nodes import remove_unused

_aten = torch.ops.aten
_ATTENTION = _aten.scaled_dot_product_attention.default
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
#: An added number at or below it drops a score: the lowest of float32 and bfloat16 does, that of float16 does not.
_DROPPED = -1e38
#: Widest head for which PyTorch's fast kernels on CUDA take groups of heads; they need half types, too.
_WIDEST = 256
_HALF = (torch.float16, torch.bfloat16)

#: Operands of an attention by name.
Operands = dict[str, Any]


def simplify_attention(program: ExportedProgram) -> None:
    """Replaces the operands of the attention calls in a program as the table above says, and removes nodes that are not
    used any more. The program must have no in-place operators."""
    graph = program.graph_module.graph
    calls = [node for node in graph.nodes if node.target is _ATTENTION]
    if any(node.target is _aten.as_strided.default for node in graph.nodes):
        return  # It reads storage, which another kernel of attention may fill in another order.
    values = UniformValues(graph)
    changed = [_change(graph, node, _without_mask(_operands(node), values)) for node in calls]
    changed += [_change(graph, node, _grouped(_operands(node))) for node in calls]
    if any(changed):
        remove_unused(graph)
        program.graph_module.recompile()


def _operands(node: Node) -> Operands:
    given = dict(zip(_NAMES, node.args, strict=False))
    return {"attn_mask": None, "dropout_p": 0.0, "is_causal": False, **given, **node.kwargs}


def _change(graph: Graph, node: Node, operands: Operands | None) -> bool:
    """Gives an attention call in the graph other operands. Returns False, and changes nothing, if `operands` is None,
    or if sizes of results or the memory order of the graph's outputs would then differ from the module's."""
    if operands is None:
        return False
    before = node.args, node.kwargs
    node.args = tuple(operands.pop(name) for name in _NAMES)
    node.kwargs = operands
    values = renewed(graph, node)
    if values is None or _resizes(values) or not values.keys().isdisjoint(graph.output_node().all_input_nodes):
        node.args, node.kwargs = before
        return False
    for changed, value in values.items():
        changed.meta["val"] = value
        for reader in changed.users:
            reader.target = _aten.reshape.default if reader.target in VIEWS else reader.target
    return True


def _resizes(values: dict[Node, Any]) -> bool:
    """Whether a new fake value has another shape than `meta["val"]` of its node has now, for example because only the
    mask that was removed had a batch dimension."""
    return any(
        isinstance(value, Tensor) and str(value.shape) != str(node.meta["val"].shape) for node, value in values.items()
    )


def _without_mask(operands: Operands, values: UniformValues) -> Operands | None:
    mask = operands["attn_mask"]
    value = values.value(mask) if isinstance(mask, Node) and not operands["is_causal"] else None
    kept = None if value is None else _kept(value)
    if kept is None or not kept.numel():
        return None
    causal = not bool(kept.all())
    if causal and not _is_causal(kept, *(operands[name].meta["val"].shape[-2] for name in ("query", "key"))):
        return None
    return {**operands, "attn_mask": None, "is_causal": causal}


def _kept(mask: Tensor) -> Tensor | None:
    """Returns a bool tensor that is true for the scores that a mask keeps as they are; None if the mask changes scores
    otherwise than by dropping them."""
    if mask.dtype == torch.bool:
        return mask
    kept = mask == 0
    return kept if bool((kept | (mask <= _DROPPED)).all()) else None


def _is_causal(kept: Tensor, queries: Any, keys: Any) -> bool:
    """Whether every matrix of a mask (`kept` is true where it keeps a score) is square, true on and below the diagonal
    and false above it, as `is_causal` means."""
    if not isinstance(queries, int) or queries != keys or kept.shape[-2:] != (queries, queries):
        return False
    wanted = torch.ones(queries, queries, dtype=torch.bool, device="cpu").tril()
    return all(torch.equal(square, wanted) for square in kept.reshape(-1, queries, queries))


def _grouped(operands: Operands) -> Operands | None:
    query, key, value = (operands[name] for name in _NAMES[:3])
    if operands["attn_mask"] is not None or operands.get("enable_gqa") or not _is_fast(query, key, value):
        return None
    k, v = (unrepeated(one) if all(_reads_heads(user, one) for user in one.users) else None for one in (key, value))
    if k is None or v is None or _heads(key) != _heads(query) or _heads(k) != _heads(v):
        return None
    return {**operands, "key": k, "value": v, "enable_gqa": True}


def _is_fast(query: Node, key: Node, value: Node) -> bool:
    """Whether PyTorch has a fused kernel for groups of heads with these operands, rather than separate products and a
    softmax."""
    noted = query.meta["val"]
    widths = {str(node.meta["val"].shape[-1]) for node in (query, key, value)}
    fits = len(widths) == 1 and isinstance(noted.shape[-1], int) and noted.shape[-1] <= _WIDEST
    return fits and (noted.device.type == "cpu" or noted.dtype in _HALF)


def _reads_heads(user: Node, heads: Node) -> bool:
    """Whether `user` is a call of attention that reads `heads` as keys or values only."""
    others = [operand for name, operand in _operands(user).items() if name not in ("key", "value")]
    return user.target is _ATTENTION and heads not in others


def _heads(node: Node) -> tuple[str, str]:
    """Returns the sizes B and H, as texts, of a value [B, H, S, E] (batch, heads, sequence, features)."""
    batch, heads = node.meta["val"].shape[:2]
    return str(batch), str(heads)
