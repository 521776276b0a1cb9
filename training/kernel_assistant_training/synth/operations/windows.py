"""Steps of random tasks that pool sequences, images and volumes."""

from __future__ import annotations

import math

from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.sizes import FREE, Shape
from kernel_assistant_training.synth.steps import Write, need, plain, step


def pooled(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Returns the number of pooling windows along a dimension of size `size`, as torch counts them."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil:
        return span // stride + 1
    count = -(-span // stride) + 1
    return count - 1 if (count - 1) * stride >= size + padding else count


def _window(make: Builder, x: Tensor, rank: int, average: bool) -> Tensor:
    plain(x)
    need(x.rank == rank + 2 and all(size < FREE for size in x.shape[1:]))
    need(not (average and rank == 3 and x.dtype != "f32"))  # torch does not implement it on the CPU
    random = make.random
    alike = random.random() < 0.85
    kernels = [random.choice((2, 3, 2, 3, 3, 4, 5, 7 if rank < 3 else 3))] * rank
    if not alike:
        kernels = [random.choice((1, 2, 3, 5)) for _ in range(rank)]
    need(max(kernels) > 1)
    strides = random.choice((kernels, kernels, [2] * rank, [1] * rank, [2] * rank))
    padding = [random.choice((0, 0, kernel // 2)) for kernel in kernels]
    if alike:
        padding = padding[:1] * rank
    dilation = [1 if average or random.random() < 0.85 else 2] * rank
    ceil = random.random() < 0.1
    sizes = [pooled(*window, ceil) for window in zip(x.shape[2:], kernels, strides, padding, dilation, strict=True)]
    need(min(sizes) >= 1 and all(d * (k - 1) + 1 <= s for d, k, s in zip(dilation, kernels, x.shape[2:], strict=True)))
    shape: Shape = (*x.shape[:2], *sizes)
    steps: list[int] = [] if strides == kernels and random.random() < 0.3 else strides
    if average:
        include = random.random() < 0.8
        args = [kernels, steps, padding, ceil, include]
        defaults: list[object] = [None, [], [0] * rank, False, True]
        return make.add(f"avg_pool{rank}d", x, *_trimmed(args, defaults), shape=shape)
    args = [kernels, steps, padding, dilation, ceil]
    defaults = [None, [], [0] * rank, [1] * rank, False]
    return make.add(f"max_pool{rank}d", x, *_trimmed(args, defaults), shape=shape)


def _trimmed(args: list[object], defaults: list[object]) -> list[object]:
    while len(args) > 1 and args[-1] == defaults[len(args) - 1]:
        args = args[:-1]
    return args


def _written(rank: int, average: bool) -> Write:
    return lambda make, x: _window(make, x, rank, average)


for _rank, _weight in ((1, 3), (2, 6), (3, 8)):
    step("windows", _weight, f"max_pool{_rank}d")(_written(_rank, False))
    step("windows", _weight, f"avg_pool{_rank}d")(_written(_rank, True))


@step("windows", 3)
def whole(make: Builder, x: Tensor) -> Tensor:
    """Reduces each channel to its mean or maximum."""
    plain(x)
    need(x.rank >= 3 and math.prod(x.shape[2:]) > 1)
    dims = list(range(2, x.rank))
    if make.random.random() < 0.4 and x.rank == 4:
        return make.add("adaptive_avg_pool2d", x, [1, 1], shape=(*x.shape[:2], 1, 1))
    keep = make.random.random() < 0.5
    shape = (*x.shape[:2], *([1] * len(dims) if keep else []))
    op = make.random.choice(("mean.dim", "mean.dim", "amax"))
    written = dims if make.random.random() < 0.5 else [dim - x.rank for dim in dims]
    return make.add(op, x, written, *((True,) if keep else ()), shape=shape)
