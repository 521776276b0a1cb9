"""Steps of random tasks that normalize images and sequences: group, instance and batch norm, in eval mode."""

from __future__ import annotations

import math

from kernel_assistant_training.synth import numbers
from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.sizes import FREE
from kernel_assistant_training.synth.steps import need, plain, step


@step("group_norm", 4)
def group_norm(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank >= 3 and 1 < x.shape[1] < FREE and math.prod(x.shape[2:]) > 1)
    channels = x.shape[1]
    groups = make.random.choice([count for count in (1, 2, 4, 8, 16, 32) if channels % count == 0])
    number = 1e-5 if make.random.random() < 0.6 else numbers.eps(make.random)
    affine = make.random.random() < 0.85
    w, b = (make.param((channels,), x.dtype), make.param((channels,), x.dtype)) if affine else (None, None)
    args: list[object] = [x, groups, w, b, number]
    for default in (1e-5, None, None):
        if args[-1] != default:
            break
        args.pop()
    return make.add("group_norm", *args, most=8.0)


@step("group_norm", 3)
def instance_norm(make: Builder, x: Tensor) -> Tensor:
    """Normalizes each channel of each image."""
    plain(x)
    need(x.rank >= 3 and 1 < x.shape[1] < FREE and math.prod(x.shape[2:]) > 1)
    affine = make.random.random() < 0.5
    w, b = (make.param((x.shape[1],), x.dtype), make.param((x.shape[1],), x.dtype)) if affine else (None, None)
    number = 1e-5 if make.random.random() < 0.6 else numbers.eps(make.random)
    return make.add("instance_norm", x, w, b, None, None, True, 0.1, number, most=8.0)


@step("batch_norm", 4)
def batch_norm(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank >= 2 and 1 < x.shape[1] < FREE and x.shape[0] == FREE)
    shape = (x.shape[1],)
    affine = make.random.random() < 0.85
    w, b = (make.param(shape, x.dtype), make.param(shape, x.dtype)) if affine else (None, None)
    mean, variance = make.buffer(shape, x.dtype), make.buffer(shape, x.dtype, positive=True)
    number = 1e-5 if make.random.random() < 0.5 else make.random.choice((1e-3, 1e-4, 1e-6, 1e-5, 2e-5))
    most = x.most * 2 + 2
    results = make.add("_native_batch_norm_legit_no_training", x, w, b, mean, variance, 0.1, number, most=most)
    return make.add("getitem", results, 0, most=most)
