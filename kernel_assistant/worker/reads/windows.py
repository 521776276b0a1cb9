"""Rules for operators that read a window of their input for each element of their result; windows may have gaps between
their elements.
"""

from __future__ import annotations

import torch

from .call import Needs, OperatorCall, once


def window(call: OperatorCall) -> Needs:
    """Rule of max pooling: it reads all elements of the windows; windows may extend beyond the input."""
    name = call.named("self")
    rank = int(call.kind.partition("_pool")[2][0])
    kernel = _each(call.numbers("kernel_size", []), rank)
    stride = _each(call.numbers("stride", kernel), rank)
    padding, dilation = _each(call.numbers("padding", [0]), rank), _each(call.numbers("dilation", [1]), rank)
    return {name: spread(call.mask(), call.shapes[name][-rank:], kernel, stride, padding, dilation)}


def convolution(call: OperatorCall) -> Needs:
    """Rule of convolutions: they read windows of all channels of a group, and the weights of the channels that are
    needed.
    """
    first, weight = call.named("input"), call.named("weight")
    kernel = list(call.shapes[weight][2:])
    rank, shape = len(kernel), call.shapes[first]
    if call.given("transposed") or len(shape) != rank + 2 or isinstance(call.given("padding"), str):
        return call.everything()
    (groups,), mask = call.numbers("groups", [1]), call.mask()
    mask = once(mask, 1)
    any_channel = mask.reshape(mask.shape[0], groups, -1, *mask.shape[2:]).any(2)
    stride, padding = _each(call.numbers("stride", [1]), rank), _each(call.numbers("padding", [0]), rank)
    read = spread(any_channel, shape[2:], kernel, stride, padding, _each(call.numbers("dilation", [1]), rank))
    made = mask.transpose(0, 1).flatten(1).any(1)
    weights = made.reshape(-1, *[1] * (rank + 1)).expand(call.shapes[weight])
    needs: Needs = dict.fromkeys(call.operands(), made)
    return {**needs, weight: weights, first: read.repeat_interleave(shape[1] // groups, 1).expand(shape)}


def spread(
    mask: torch.Tensor,
    sizes: tuple[int, ...],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> torch.Tensor:
    """Returns a mask of the input positions in all windows whose results are needed according to `mask`. `sizes` are
    the input's last dimensions, which are handled one after another; the four lists have one number for each of them.
    """
    outer = mask.shape[: mask.dim() - len(sizes)]
    mask = once(mask, len(outer))
    for index, size in enumerate(sizes):
        dim = mask.dim() - len(sizes) + index
        widened = torch.zeros((*mask.shape[:dim], size, *mask.shape[dim + 1 :]), dtype=torch.bool, device=mask.device)
        starts = torch.arange(mask.shape[dim], device=mask.device) * stride[index] - padding[index]
        for step in range(kernel[index]):
            at = starts + step * dilation[index]
            (inside,) = torch.nonzero((at >= 0) & (at < size), as_tuple=True)
            to = at[inside]
            widened.index_copy_(dim, to, widened.index_select(dim, to) | mask.index_select(dim, inside))
        mask = widened
    return mask.expand(*outer, *sizes)


def _each(given: list[int], rank: int) -> list[int]:
    return given if len(given) == rank else given[:1] * rank
