"""Operators that move elements or add some of them up, at places that do not depend on what they are."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..runner.pytorch.aten import Operator
from .call import Call, Need, Needs, any_over, decisive, joined, references, unbroadcast

_CHOICES = {"where": ("condition", "self", "other"), "masked_fill": ("mask", "value", "self")}


def choice(call: Call) -> Needs:
    """The condition, and of two values at each place that which it takes."""
    condition, chosen, other = (call.named(name) for name in _CHOICES[call.kind])
    mask, holds = call.mask(), call.values[condition].to(torch.bool)
    found: Needs = {condition: unbroadcast(mask, call.shapes[condition])}
    for name, part in ((chosen, mask & holds), (other, mask & ~holds)):
        if name:
            needed = unbroadcast(part, call.shapes[name])
            found[name] = joined(needed, found[name]) if name in found else needed
    return found


def product(call: Call) -> Needs:
    """Elementwise; where one factor is a gate that is zero, the other one changes nothing."""
    mask, gates = call.mask(), decisive(call.node, call.gates)
    found: Needs = {}
    for name in call.operands():
        others = [call.values[gate] != 0 for gate in gates if gate != name]
        found[name] = unbroadcast(mask & others[0] if others else mask, call.shapes[name])
    return found


def first(call: Call) -> Needs:
    """The first operand alone, in the shape or the type of another."""
    name, mask = call.named("self"), call.mask()
    shape = call.shapes[name]
    return {name: mask.reshape(shape) if mask.numel() == math.prod(shape) else unbroadcast(mask, shape)}


def linear(call: Call) -> Needs:
    """Where the operator's own derivative is not zero: weights are positive, so that none takes away another."""
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
    found: Needs = {name: _indices(call, name) for name in known}
    asked = [(results[place], need) for place, need in call.needed.items() if results[place].requires_grad]
    if leaves and asked:
        slopes = torch.autograd.grad(
            [result for result, _ in asked],
            list(leaves.values()),
            [_weights(result, need[:1] if alike and not isinstance(need, bool) else need) for result, need in asked],
            allow_unused=True,
        )
        found |= {
            name: (slope != 0).expand(call.shapes[name])
            for name, slope in zip(leaves, slopes, strict=True)
            if slope is not None
        }
    return found


#: Operator → how many of the last dimensions it has to do with; and those that name the one.
_OWN_DIMENSIONS = {"tril": 2, "triu": 2, "pixel_shuffle": 3, "pixel_unshuffle": 3} | {
    f"{name}{rank}d": rank + 1
    for name in ("avg_pool", "reflection_pad", "replication_pad", "upsample_nearest", "_upsample_nearest_exact")
    for rank in (1, 2, 3)
}
_ALONG = frozenset({"slice", "select", "narrow", "narrow_copy", "split", "split_with_sizes", "chunk", "unbind"})


def _alike(call: Call) -> bool:
    """Whether it does the same at each place of the first dimension of its one operand, and the same is needed there:
    one place says it for all, in that much less time and memory."""
    names = call.operands()
    if len(names) != 1 or not all(isinstance(need, bool) or need.stride(0) == 0 for need in call.needed.values()):
        return False
    shape = call.shapes[names[0]]
    if call.kind in _ALONG:
        # `x[:, 1:]` is a slice of all of the first dimension too.
        whole = call.kind == "slice" and call.shape == shape
        return whole or (len(shape) > 1 and call.numbers("dim", [0])[0] % len(shape) != 0)
    if call.kind in ("constant_pad_nd", "pad"):
        return len(call.numbers("pad", [])) < 2 * len(shape)
    return len(shape) > _OWN_DIMENSIONS.get(call.kind, len(shape))


def _plain(call: Call) -> dict[str, Any]:
    """The node; of an embedding without the options that change its derivative and nothing else."""
    plain = {"args": list(call.node["args"])[:2], "kwargs": {}} if call.kind == "embedding" else {}
    return {**call.node, **plain}


def _weights(result: torch.Tensor, need: Need) -> torch.Tensor:
    return torch.ones_like(result) if isinstance(need, bool) else need.to(result.dtype)


def _indices(call: Call, name: str) -> Need:
    """Of indices those that say where something comes from that is needed; all where that is not followed."""
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
    """Of one index of `shape`, whose dimensions stand in the result from `first` on."""
    own = range(first, first + len(shape))
    read = any_over(mask, [dim for dim in range(mask.dim()) if dim not in own])
    return read.reshape(shape) if read.numel() == math.prod(shape) else True
