"""Rules for operators that move elements or add some of them up, at positions that do not depend on their values."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..runner.pytorch.aten import Operator
from .call import Need, Needs, OperatorCall, any_over, decisive, joined, references, unbroadcast

_CHOICES = {"where": ("condition", "self", "other"), "masked_fill": ("mask", "value", "self")}


def choice(call: OperatorCall) -> Needs:
    """Rule of `where` and `masked_fill`: they read the needed elements of the condition, and at each position only the
    value that the condition selects.
    """
    condition, chosen, other = (call.named(name) for name in _CHOICES[call.kind])
    mask, holds = call.mask(), call.values[condition].to(torch.bool)
    needs: Needs = {condition: unbroadcast(mask, call.shapes[condition])}
    for name, part in ((chosen, mask & holds), (other, mask & ~holds)):
        if name:
            needed = unbroadcast(part, call.shapes[name])
            needs[name] = joined(needed, needs[name]) if name in needs else needed
    return needs


def product(call: OperatorCall) -> Needs:
    """Rule of an elementwise product: where one factor is a gate (a value with zeros at known positions) and is zero,
    the other factor is not read.
    """
    mask, gates = call.mask(), decisive(call.node, call.gates)
    needs: Needs = {}
    for name in call.operands():
        others = [call.values[gate] != 0 for gate in gates if gate != name]
        needs[name] = unbroadcast(mask & others[0] if others else mask, call.shapes[name])
    return needs


def first(call: OperatorCall) -> Needs:
    """Rule of operators that read values of their operand `self` only; of another operand they use just the shape or
    the type."""
    name, mask = call.named("self"), call.mask()
    shape = call.shapes[name]
    return {name: mask.reshape(shape) if mask.numel() == math.prod(shape) else unbroadcast(mask, shape)}


def linear(call: OperatorCall) -> Needs:
    """Rule of linear operators: of each operand they read the elements for which the operator's derivative is not zero.
    The derivative is computed with positive weights, so that no two contributions cancel.
    """
    known = decisive(call.node, call.gates)
    alike = _alike(call)
    leaves = {
        name: torch.zeros([1, *call.shapes[name][1:]] if alike else call.shapes[name], device=call.device)
        for name in call.operands()
        if name not in known
    }
    for leaf in leaves.values():
        leaf.requires_grad_()
    values: dict[str, Any] = {**{name: call.values[name] for name in known}, **leaves}
    with torch.enable_grad():
        Operator(_plain(call), dict(call.dims), str(call.device))(values)
    made = values[call.node["name"]]
    results = list(made) if isinstance(made, (list, tuple)) else [made]
    needs: Needs = {name: _indices(call, name) for name in known}
    asked = [(results[index], need) for index, need in call.needed.items() if results[index].requires_grad]
    if leaves and asked:
        slopes = torch.autograd.grad(
            [result for result, _ in asked],
            list(leaves.values()),
            [_weights(result, need[:1] if alike and not isinstance(need, bool) else need) for result, need in asked],
            allow_unused=True,
        )
        needs |= {
            name: (slope != 0).expand(call.shapes[name])
            for name, slope in zip(leaves, slopes, strict=True)
            if slope is not None
        }
    return needs


#: Operator → how many of the last dimensions it works on; then the operators with an argument for one dimension.
_OWN_DIMENSIONS = {"tril": 2, "triu": 2, "pixel_shuffle": 3, "pixel_unshuffle": 3} | {
    f"{name}{rank}d": rank + 1
    for name in ("avg_pool", "reflection_pad", "replication_pad", "upsample_nearest", "_upsample_nearest_exact")
    for rank in (1, 2, 3)
}
_ALONG = frozenset({"slice", "select", "narrow", "narrow_copy", "split", "split_with_sizes", "chunk", "unbind"})


def _alike(call: OperatorCall) -> bool:
    """Whether the operator has one operand, treats every index of its first dimension alike, and the same elements are
    needed at each index. Then the rule is evaluated for one index only, which saves time and memory."""
    names = call.operands()
    if len(names) != 1 or not all(isinstance(need, bool) or need.stride(0) == 0 for need in call.needed.values()):
        return False
    shape = call.shapes[names[0]]
    if call.kind in _ALONG:
        # `x[:, 1:]` also contains a slice of the whole first dimension.
        whole = call.kind == "slice" and call.shape == shape
        return whole or (len(shape) > 1 and call.numbers("dim", [0])[0] % len(shape) != 0)
    if call.kind in ("constant_pad_nd", "pad"):
        return len(call.numbers("pad", [])) < 2 * len(shape)
    return len(shape) > _OWN_DIMENSIONS.get(call.kind, len(shape))


def _plain(call: OperatorCall) -> dict[str, Any]:
    """Returns a copy of the call's node. For an embedding, it leaves out the options that change only the operator's
    derivative."""
    plain = {"args": list(call.node["args"])[:2], "kwargs": {}} if call.kind == "embedding" else {}
    return {**call.node, **plain}


def _weights(result: torch.Tensor, need: Need) -> torch.Tensor:
    return torch.ones_like(result) if isinstance(need, bool) else need.to(result.dtype)


def _indices(call: OperatorCall, name: str) -> Need:
    """Returns the needed elements of the index operand `name`: those that select needed elements of the result. True if
    this rule cannot tell which they are."""
    alone = len(decisive(call.node, call.gates)) == 1 and list(references(call.node)).count(name) == 1
    if not alone or call.named("self", "weight") == name:
        return True
    mask = call.mask()
    if call.kind in ("gather", "take_along_dim"):
        return unbroadcast(mask, call.shapes[name])
    if call.kind == "embedding":
        return mask.any(-1)
    if call.kind in ("index", "index_select"):
        first = call.given("indices").index(f"%{name}") if call.kind == "index" else call.numbers("dim", [0])[0]
        return _along(mask, first % max(mask.dim(), 1), call.shapes[name])
    return True


def _along(mask: torch.Tensor, first: int, shape: tuple[int, ...]) -> Need:
    """Returns the needed elements of one index tensor of `shape`, True if they cannot be told. `mask` has the needed
    elements of the result, in which the dimensions of the index tensor begin at dimension `first`."""
    own = range(first, first + len(shape))
    read = any_over(mask, [dim for dim in range(mask.dim()) if dim not in own])
    return read.reshape(shape) if read.numel() == math.prod(shape) else True
