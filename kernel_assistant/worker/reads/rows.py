"""Rules for operators that read whole rows, columns or groups for one element of their result."""

from __future__ import annotations

import torch

from .call import Needs, OperatorCall, any_over, unbroadcast


def elementwise(call: OperatorCall) -> Needs:
    mask = call.mask()
    return {name: unbroadcast(mask, call.shapes[name]) for name in call.operands()}


def others(call: OperatorCall) -> Needs:
    """Rule of operators that use only the shape of their first operand: they read all other operands elementwise."""
    return {name: need for name, need in elementwise(call).items() if name != call.named("self")}


def losses(call: OperatorCall) -> Needs:
    """Rule of losses: without reduction they read elementwise, otherwise they read everything. Without the operand
    `reduction` it is 1, the mean.
    """
    return call.everything() if call.numbers("reduction", [1]) != [0] else elementwise(call)


def rows(call: OperatorCall) -> Needs:
    """Rule of sums, maxima, minima, softmax and sorting: they read whole rows along the given dimensions, or along all
    if none is given.
    """
    names, mask = call.operands(), call.mask()
    shape = call.shapes[names[0]]
    if any(call.shapes[name] != shape for name in names):
        return call.everything()
    dims = sorted(dim % len(shape) for dim in call.numbers("dim", list(range(len(shape))))) if shape else []
    if mask.dim() < len(shape):
        for dim in dims:
            mask = mask.unsqueeze(dim)
    read = any_over(mask, dims).expand(shape)
    return dict.fromkeys(names, read)


def scan(call: OperatorCall) -> Needs:
    """Rule of scans, such as cumsum: along the dimension they read all elements from the beginning up to the last
    needed one."""
    (dim,), mask = call.numbers("dim", [0]), call.mask()
    before = mask.flip(dim).to(torch.uint8).cummax(dim).values.flip(dim).bool() if mask.dim() else mask
    return dict.fromkeys(call.operands(), before)


def last_dimensions(call: OperatorCall) -> Needs:
    """Rule of norms over the last dimensions, such as layer norm, which have the shape of these dimensions as an
    operand: they read whole rows of the input, and weights elementwise."""
    first, mask = call.named("input"), call.mask()
    dims = list(range(mask.dim() - len(call.numbers("normalized_shape", [])), mask.dim()))
    needs: Needs = {name: unbroadcast(mask, call.shapes[name]) for name in call.operands()}
    return {**needs, first: any_over(mask, dims).expand(mask.shape)}


def groups(call: OperatorCall) -> Needs:
    """Rule of norms that use the input's own statistics over groups of channels: they read whole groups. If no number
    of groups is given, each channel is a group.
    """
    mask = call.mask()
    if call.kind == "instance_norm" and not call.given("use_input_stats"):
        return channels(call)
    (count,) = call.numbers("num_groups", [call.shape[1]])
    each = mask.reshape(mask.shape[0], count, -1)
    read = each.any(2, keepdim=True).expand(each.shape).reshape(mask.shape)
    return {**channels(call), call.named("input"): read}


def channels(call: OperatorCall) -> Needs:
    """Rule of operators such as batch norm in inference: they read their input elementwise, and of operands with one
    element for each channel those of needed channels. An operand of any other shape is read completely."""
    mask = call.mask()
    each = mask.transpose(0, 1).flatten(1).any(1) if mask.dim() > 1 else mask
    known = {call.shape: mask, tuple(each.shape): each}
    return {name: known.get(call.shapes[name], True) for name in call.operands()}


def gated(call: OperatorCall) -> Needs:
    (dim,) = call.numbers("dim", [-1])
    return dict.fromkeys(call.operands(), torch.cat([call.mask()] * 2, dim))


def product(call: OperatorCall) -> Needs:
    """Rule of matrix products: for a needed element they read a row of the first factor and a column of the second. The
    weight of a linear layer is stored transposed."""
    mask = call.mask()
    first, second = call.named("mat1", "batch1", "input", "self"), call.named("mat2", "batch2", "weight", "other")
    one, two = call.shapes[first], call.shapes[second]
    if min(len(one), len(two)) < 2 or first == second:
        return call.everything()
    columns = mask.flatten(0, -2).any(0)[:, None] if call.kind == "linear" else mask.any(-2, keepdim=True)
    if call.kind != "linear":
        columns = columns.expand(*columns.shape[:-2], *two[-2:])
    needs: Needs = {
        name: unbroadcast(mask, call.shapes[name]) for name in call.operands() if name not in (first, second)
    }
    needs[first] = unbroadcast(mask.any(-1, keepdim=True).expand(*mask.shape[:-1], one[-1]), one)
    needs[second] = columns.expand(two) if call.kind == "linear" else unbroadcast(columns, two)
    return needs
