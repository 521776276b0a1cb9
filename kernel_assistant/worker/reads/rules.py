"""The rule of each operator: which elements of its operands it has to read for given elements of its results.

An operator without a rule reads all of every operand. That is more than it has to where a result is only partly needed,
so an operator that can leave out elements belongs here: an honest kernel is called impossibly fast otherwise.
`tests/worker/test_reads.py` holds the rules against what changes results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from . import moves, rows, windows
from .call import Call, Gates, Needs, decisive, kind, overload, references, whole_or

#: Elementwise ones that PyTorch does not tag so.
_EACH = frozenset(
    {"_to_copy", "alias", "clone", "contiguous", "detach", "dropout", "feature_dropout", "hardswish"}
    | {"lift_fresh_copy", "log_sigmoid", "to"}
)
#: Those that give each element of their operands once at least: where all is needed, all is read.
_MOVED = frozenset(
    {"_reshape_alias", "_unsafe_view", "broadcast_to", "cat", "channel_shuffle", "expand"}
    | {"flatten", "flip", "hstack", "meshgrid", "movedim", "native_channel_shuffle"}
    | {"permute", "pixel_shuffle", "pixel_unshuffle", "repeat", "repeat_interleave", "reshape", "roll", "rot90"}
    | {"squeeze", "stack", "swapaxes", "t", "tile", "transpose", "unflatten", "unsqueeze", "view"}
    | {"diag_embed", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"}
    | {"_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "broadcast_tensors"}
)
#: Those that may leave elements of an operand out.
_CUT = frozenset(
    {"_unsafe_index", "chunk", "col2im", "constant_pad_nd", "diag", "diagonal", "embedding", "embedding_bag", "gather"}
    | {"im2col", "index", "index_add", "index_copy", "index_fill", "index_put", "index_select", "narrow"}
    | {"narrow_copy", "nll_loss", "nll_loss2d", "nll_loss_nd", "pad"}
    | {"reflection_pad1d", "reflection_pad2d", "reflection_pad3d"}
    | {"replication_pad1d", "replication_pad2d", "replication_pad3d", "scatter", "scatter_add", "select"}
    | {"select_scatter", "slice", "slice_scatter", "split", "split_with_sizes", "take", "take_along_dim"}
    | {"tensor_split", "trace", "tril", "triu", "unbind", "unfold", "unsafe_chunk", "unsafe_split"}
    | {f"avg_pool{rank}d" for rank in (1, 2, 3)}
    | {f"{name}{rank}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)}
    | {"upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"}
)
_ROWS = frozenset(
    {
        "_log_softmax",
        "_softmax",
        "cosine_similarity",
        "count_nonzero",
        "all",
        "amax",
        "amin",
        "aminmax",
        "any",
        "argmax",
        "argmin",
        "argsort",
    }
    | {"kthvalue", "linalg_vector_norm", "log_softmax", "logsumexp", "max", "mean", "median", "min", "mode", "msort"}
    | {"nanmean", "nanmedian", "nansum", "norm", "normalize", "prod", "softmax", "softmin", "sort", "std", "std_mean"}
    | {"sum", "topk", "var", "var_mean"}
)
#: Those that take no more than shape and type from their first operand.
_LIKE = frozenset(
    {"copy", "empty_like", "fill", "full_like", "new_empty", "new_full", "new_ones", "new_zeros", "ones_like"}
    | {"rand_like", "randn_like", "zeros_like"}
)
#: Those that take no more than that from their second operand.
_AS = frozenset({"expand_as", "reshape_as", "type_as", "view_as"})
_SCANS = frozenset({"cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"})
_LOSSES = frozenset(
    {"binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss", "kl_div", "l1_loss", "mse_loss"}
    | {"poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss"}
)
_CHOICES = frozenset({"where", "masked_fill", "mul"})
_POOLS = frozenset(f"max_pool{rank}d{more}" for rank in (1, 2, 3) for more in ("", "_with_indices"))
_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d", "convolution"})

_RULES: dict[str, Callable[[Call], Needs]] = {
    **dict.fromkeys(_EACH, rows.elementwise),
    **dict.fromkeys(_LIKE, rows.others),
    **dict.fromkeys(_AS, moves.first),
    **dict.fromkeys(_MOVED | _CUT, moves.linear),
    **dict.fromkeys(_ROWS, rows.rows),
    **dict.fromkeys(_SCANS, rows.scan),
    **dict.fromkeys(_LOSSES, rows.losses),
    **dict.fromkeys(_POOLS, windows.window),
    **dict.fromkeys(_CONVOLUTIONS, windows.convolution),
    **dict.fromkeys(("where", "masked_fill"), moves.choice),
    "mul": moves.product,
    **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm"), rows.last_dimensions),
    **dict.fromkeys(("group_norm", "instance_norm"), rows.groups),
    **dict.fromkeys(("prelu", "_prelu_kernel", "_native_batch_norm_legit_no_training"), rows.channels),
    **dict.fromkeys(("addmm", "baddbmm", "bmm", "linear", "matmul", "mm"), rows.product),
    "glu": rows.gated,
}
#: What may leave elements out although all of its results are needed.
PARTIAL = _CUT | _POOLS | _CONVOLUTIONS | _LIKE | _AS | {"where", "masked_fill"}
#: Positions that are computed decide what they read of the first operand, which is not followed: nothing is claimed.
_ANYWHERE = frozenset(
    {"bucketize", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "masked_scatter", "searchsorted"}
)


def reads(call: Call) -> Needs:
    """What is needed of each operand."""
    if call.kind in _ANYWHERE:
        return dict.fromkeys([name for name in call.operands() if name != call.named(*_LOOKED_UP)], True)
    if not (call.kind in PARTIAL or decisive(call.node, call.gates)) and all(
        need is True for need in call.needed.values()
    ):
        return call.everything()
    # `max.other` is elementwise, `max.dim` is not; a choice is more than that.
    tagged = _is_elementwise(call.node["op"]) and call.kind not in _CHOICES
    rule = rows.elementwise if tagged else _RULES.get(call.kind)
    return {name: whole_or(need) for name, need in rule(call).items()} if rule else call.everything()


_LOOKED_UP = ("sorted_sequence", "boundaries", "input", "self")


def gates(graph: Mapping[str, Any]) -> Gates:
    """Values that are zero at some places for a reason: booleans, buffers, constants and what is made of these alone;
    then triangles and what is padded or masked. A floating input is zero by luck, which no kernel could go by."""
    found = {
        value["name"] for value in graph["inputs"] if value["spec"]["dtype"] == "b1" or value.get("kind") == "buffer"
    }
    cut = set[str]()
    for node in graph["nodes"]:
        moved = kind(node) in _GATED
        if (node["spec"] or {}).get("dtype") == "b1" or (moved and found.issuperset(references(node))):
            found.add(node["name"])
        elif kind(node) in _ZEROING or (moved and (found | cut).issuperset(references(node))):
            cut.add(node["name"])
    return frozenset(found), frozenset(cut)


#: These make zeros of whatever they are given.
_ZEROING = frozenset({"constant_pad_nd", "masked_fill", "pad", "tril", "triu", "where"})
#: Of gates these make gates: nothing large is computed for it.
_GATED = (
    _EACH
    | _MOVED
    | _CUT
    | _AS
    | _LIKE
    | frozenset({"add", "arange", "div", "eye", "full", "mul", "neg", "ones", "rsub", "scalar_tensor", "sub", "zeros"})
)


def _is_elementwise(op: str) -> bool:
    found = overload(op)
    return found is not None and torch.Tag.pointwise in found.tags
