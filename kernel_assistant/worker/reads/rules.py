"""The rule of each operator: which elements of its operands it has to read if given elements of its results are needed.

An operator without a rule reads all of every operand. If a result is only partly needed, this overestimates the
elements that have to be read, and a correct kernel would be called impossibly fast. So every operator that can leave
out elements needs a rule. `tests/worker/test_reads.py` compares the rules with the elements whose change changes the
results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from . import moves, rows, windows
from .call import Gates, Needs, OperatorCall, decisive, kind, overload, references, whole_or

#: Elementwise operators that PyTorch does not tag as pointwise.
_EACH = frozenset(
    {"_to_copy", "alias", "clone", "contiguous", "detach", "dropout", "feature_dropout", "hardswish"}
    | {"lift_fresh_copy", "log_sigmoid", "to"}
)
#: Operators whose result contains each element of their operands at least once: if all is needed, all is read.
_MOVED = frozenset(
    {"_reshape_alias", "_unsafe_view", "broadcast_to", "cat", "channel_shuffle", "expand"}
    | {"flatten", "flip", "hstack", "meshgrid", "movedim", "native_channel_shuffle"}
    | {"permute", "pixel_shuffle", "pixel_unshuffle", "repeat", "repeat_interleave", "reshape", "roll", "rot90"}
    | {"squeeze", "stack", "swapaxes", "t", "tile", "transpose", "unflatten", "unsqueeze", "view"}
    | {"diag_embed", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"}
    | {"_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "broadcast_tensors"}
)
#: Operators that may leave out elements of an operand.
_CUT = frozenset(
    {"_unsafe_index", "chunk", "col2im", "constant_pad_nd", "diag", "diagonal", "embedding", "embedding_bag", "gather"}
    | {"im2col", "index", "index_add", "index_copy", "index_fill", "index_put", "index_select", "narrow"}
    | {"narrow_copy", "nll_loss", "nll_loss2d", "nll_loss_nd", "pad"}
    | {"reflection_pad1d", "reflection_pad2d", "reflection_pad3d"}
    | {"replication_pad1d", "replication_pad2d", "replication_pad3d", "scatter", "scatter_add", "select"}
    | {"select_scatter", "slice", "slice_scatter", "split", "split_with_sizes", "take", "take_along_dim"}
    | {"tensor_split", "trace", "tril", "triu", "unbind", "unfold", "unfold_backward", "unsafe_chunk", "unsafe_split"}
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
#: Operators that take only shape and type from their first operand.
_LIKE = frozenset(
    {"copy", "empty_like", "fill", "full_like", "new_empty", "new_full", "new_ones", "new_zeros", "ones_like"}
    | {"rand_like", "randn_like", "zero", "zeros_like"}
)
#: Operators that take only shape and type from their second operand.
_AS = frozenset({"expand_as", "reshape_as", "type_as", "view_as"})
_SCANS = frozenset({"cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"})
_LOSSES = frozenset(
    {"binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss", "kl_div", "l1_loss", "mse_loss"}
    | {"poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss"}
)
_CHOICES = frozenset({"where", "masked_fill", "mul"})
_POOLS = frozenset(f"max_pool{rank}d{more}" for rank in (1, 2, 3) for more in ("", "_with_indices"))
_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d", "convolution"})

_RULES: dict[str, Callable[[OperatorCall], Needs]] = {
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
#: Operators that may leave out elements although all of their results are needed.
PARTIAL = _CUT | _POOLS | _CONVOLUTIONS | _LIKE | _AS | {"where", "masked_fill"}
#: Operators that read their first operand at computed positions, which are not followed: none of it counts as read.
_ANYWHERE = frozenset(
    {"as_strided", "bucketize", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "masked_scatter", "searchsorted"}
)


def reads(call: OperatorCall) -> Needs:
    """Returns the needed elements of each operand of a call, by the operand's name: True for all, or a boolean mask of
    its shape. Operands that are not read may be missing."""
    if call.kind in _ANYWHERE:
        return dict.fromkeys([name for name in call.operands() if name != call.named(*_LOOKED_UP)], True)
    if not (call.kind in PARTIAL or decisive(call.node, call.gates)) and all(
        need is True for need in call.needed.values()
    ):
        return call.everything()
    # The tag belongs to an overload: `max.other` is elementwise, `max.dim` is not. Choices have a rule of their own.
    tagged = _is_elementwise(call.node["op"]) and call.kind not in _CHOICES
    rule = rows.elementwise if tagged else _RULES.get(call.kind)
    return {name: whole_or(need) for name, need in rule(call).items()} if rule else call.everything()


_LOOKED_UP = ("sorted_sequence", "boundaries", "input", "self")


def gates(graph: Mapping[str, Any]) -> Gates:
    """Returns two sets of names of values that have zeros at known positions. The first has booleans, buffers,
    constants and values computed from these alone; the second has triangular, padded and masked values.

    A zero in a floating-point input does not count: it is there by chance, and no kernel could rely on it.
    """
    names = {
        value["name"] for value in graph["inputs"] if value["spec"]["dtype"] == "b1" or value.get("kind") == "buffer"
    }
    cut = set[str]()
    for node in graph["nodes"]:
        moved = kind(node) in _GATED
        if (node["spec"] or {}).get("dtype") == "b1" or (moved and names.issuperset(references(node))):
            names.add(node["name"])
        elif kind(node) in _ZEROING or (moved and (names | cut).issuperset(references(node))):
            cut.add(node["name"])
    return frozenset(names), frozenset(cut)


#: Operators that write zeros whatever their input is.
_ZEROING = frozenset({"constant_pad_nd", "masked_fill", "pad", "tril", "triu", "where"})
#: Operators whose result is a gate if their operands are; they cost little to compute.
_GATED = (
    _EACH
    | _MOVED
    | _CUT
    | _AS
    | _LIKE
    | frozenset({"add", "arange", "div", "eye", "full", "mul", "neg", "ones", "rsub", "scalar_tensor", "sub", "zeros"})
)


def _is_elementwise(op: str) -> bool:
    operator = overload(op)
    return operator is not None and torch.Tag.pointwise in operator.tags
