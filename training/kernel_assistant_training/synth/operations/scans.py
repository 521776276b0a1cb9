"""Steps of random tasks with running sums, products and extremes (prefix scans)."""

from __future__ import annotations

from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.operations.rows import last
from kernel_assistant_training.synth.sizes import FREE
from kernel_assistant_training.synth.steps import need, plain, step


def _dim(make: Builder, x: Tensor) -> int:
    """Returns a dimension to scan: usually the last one, sometimes dimension 1."""
    dim = last(make, x)
    return 1 if x.rank >= 3 and make.random.random() < 0.25 else dim


def _along(make: Builder, x: Tensor) -> Tensor:
    return make.add("cumsum", x, _dim(make, x), most=min(x.most * 64, 500.0))


@step("scan", 5)
def cumsum(make: Builder, x: Tensor) -> Tensor:
    return _along(make, x)


@step("scan", 6)
def extremes(make: Builder, x: Tensor) -> Tensor:
    """Computes the running maximum or minimum, without the positions of the extremes."""
    dim = _dim(make, x)
    both = make.add(make.random.choice(("cummax", "cummin")), x, dim)
    return make.add("getitem", both, 0, most=x.most, positive=x.positive)


@step("scan", 2)
def reverse(make: Builder, x: Tensor) -> Tensor:
    dim = last(make, x)
    turned = make.view("flip", x, [dim], shape=x.shape)
    return make.view("flip", make.add("cumsum", turned, dim, most=min(x.most * 64, 500.0)), [dim], shape=x.shape)


@step("scan", 1.5)
def exclusive(make: Builder, x: Tensor) -> Tensor:
    return make.each("sub.Tensor", make.add("cumsum", x, last(make, x), most=min(x.most * 64, 500.0)), x)


@step("scan", 1.5)
def masked_sum(make: Builder, x: Tensor) -> Tensor:
    dim = last(make, x)
    need(x.shape[0] == FREE and len(make.inputs) < 4)
    kept = make.each("mul.Tensor", x, make.input(x.shape, "b1"))
    return make.add("cumsum", kept, dim, most=min(x.most * 64, 500.0))


@step("scan", 1)
def running_mean(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    dim = last(make, x)
    total = make.add("cumsum", x, dim, most=min(x.most * 64, 500.0))
    counts = make.buffer((x.last,), x.dtype, positive=True)
    return make.each("div.Tensor", total, counts)


@step("scan", 1)
def running_logs(make: Builder, x: Tensor) -> Tensor:
    """Computes a running product that does not overflow: exp(cumsum(log σ(x)))."""
    dim = last(make, x)
    logs = make.each("log_sigmoid", x)
    return make.each("exp", make.add("cumsum", logs, dim, most=0.0), most=1.0, positive=True)


@step("scan", 4)
def cumprod(make: Builder, x: Tensor) -> Tensor:
    """Computes the running product along a row, of factors near 1."""
    dim = last(make, x)
    need(make.dtype == "f32" and x.last <= 16384)
    near = make.each("tanh", x, most=1.0) if make.random.random() < 0.5 else make.each("sigmoid", x, most=1.0)
    parts = [part for part in (0.02, 0.01, 1e-3, 1e-4) if part * x.last <= 40]
    small = make.each("mul.Tensor", near, make.random.choice(parts))
    factors = make.each("add.Tensor", small, 1.0, positive=True)
    return make.add("cumprod", factors, dim, most=100.0, positive=True)
