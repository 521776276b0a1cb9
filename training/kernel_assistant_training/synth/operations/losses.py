"""Steps of random tasks that compute a loss of two tensors: elementwise, or over rows and classes. The losses are
reduced to one number or kept for each element."""

from __future__ import annotations

from kernel_assistant_training.synth.builder import Builder, Tensor, Unfit
from kernel_assistant_training.synth.operations.broadcasting import partner
from kernel_assistant_training.synth.sizes import FREE
from kernel_assistant_training.synth.steps import need, plain, step

#: Torch's numbers for the reduction of a loss; the mean is the default and not written.
_NONE, _MEAN, _SUM = 0, 1, 2


def _reduction(make: Builder) -> int:
    """Returns a random reduction. It is never the sum for float16, where it would overflow."""
    return make.random.choices((_NONE, _MEAN, _SUM), (2, 6, 0 if make.dtype == "f16" else 2))[0]


def _loss(make: Builder, op: str, x: Tensor, *args: object, kind: int, rest: tuple[object, ...] = ()) -> Tensor:
    """Adds a loss operator with the reduction `kind`; returns its result. `rest` are the operands after the reduction;
    default operands are not written."""
    tail = (kind, *rest) if rest or kind != _MEAN else ()
    if kind == _NONE:
        return make.each(op, x, *args, *tail, most=x.most**2)
    return make.add(op, x, *args, *tail, shape=(), most=x.most**2)


@step("loss", 6)
def of_values(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank >= 2)
    other, kind = partner(make, x), _reduction(make)
    op = make.random.choice(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "smooth_l1_loss"))
    if op in ("smooth_l1_loss", "huber_loss"):
        width = make.random.choice((1.0, 0.5, 2.0, 0.1, 1.5))
        return _loss(make, op, x, other, kind=kind, rest=() if width == 1.0 else (width,))
    return _loss(make, op, x, other, kind=kind)


@step("loss", 2)
def of_logits(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank >= 2)
    shares = make.each("sigmoid", partner(make, x), most=1.0, positive=True)
    kind = _reduction(make)
    rest = (None, None, kind) if kind != _MEAN else ()
    if kind == _NONE:
        return make.each("binary_cross_entropy_with_logits", x, shares, *rest, most=2 * x.most)
    return make.add("binary_cross_entropy_with_logits", x, shares, *rest, shape=(), most=2 * x.most)


@step("loss", 6)
def cross_entropy(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank == 2 and x.shape[0] == FREE and 2 < x.last < FREE and len(make.inputs) < 4)
    target, kind = make.input((FREE,), "i64"), _reduction(make)
    shape = (FREE,) if kind == _NONE else ()
    smoothing = make.random.choice((0.0, 0.0, 0.1, 0.05))
    rest: tuple[object, ...] = (None, kind, -100, smoothing) if smoothing else (None, kind) if kind != _MEAN else ()
    return make.add("cross_entropy_loss", x, target, *rest, shape=shape, most=20.0)


@step("loss", 4)
def divergence(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank == 2 and 2 < x.last < FREE)
    logs = make.add("log_softmax.int", x, make.random.choice((-1, 1)), most=20.0)
    shares = make.add("softmax.int", partner(make, x), make.random.choice((-1, 1)), most=1.0, positive=True)
    kind = make.random.choice((_MEAN, _SUM, _SUM))
    total = make.add("kl_div", logs, shares, *(() if kind == _MEAN else (kind,)), shape=(), most=100.0)
    if kind == _SUM and make.random.random() < 0.6:
        return make.add("div.Tensor", total, "B", shape=(), most=20.0)
    return total


@step("loss", 2)
def hinge(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank == 2)
    sides = make.each("sign", partner_input(make, x))
    apart = make.each("rsub.Scalar", make.each("mul.Tensor", x, sides), make.random.choice((1, 1.0, 0.5)))
    missed = make.each("clamp_min", apart, make.random.choice((0, 0.0)), most=x.most + 1)
    if make.random.random() < 0.4:
        missed = make.each("pow.Tensor_Scalar", missed, 2, most=(x.most + 1) ** 2)
    return make.add("mean", missed, shape=())


@step("loss", 4)
def margin_rows(make: Builder, x: Tensor) -> Tensor:
    """Computes the triplet margin loss of rows, or the cosine embedding loss of two rows and a sign."""
    plain(x)
    need(x.rank == 2 and x.last < FREE and len(make.inputs) < 3)
    if make.random.random() < 0.6:
        margin = make.random.choice((1.0, 0.5, 0.2, 0.3))
        rest = () if margin == 1.0 else (margin,)
        return make.add(
            "triplet_margin_loss", x, partner_input(make, x), partner_input(make, x), *rest, shape=(), most=50.0
        )
    sides = make.each("sign", make.input((FREE,), x.dtype))
    margin = make.random.choice((0.0, 0.1, 0.5))
    rest = () if margin == 0.0 else (margin,)
    return make.add("cosine_embedding_loss", x, partner_input(make, x), sides, *rest, shape=(), most=2.0)


@step("total", 4)
def total(make: Builder, x: Tensor) -> Tensor:
    """Computes the sum, mean or maximum of all elements."""
    plain(x)
    need(x.rank >= 2)
    op = make.random.choice(("mean", "mean", "max", "amax") if make.dtype == "f16" else ("sum", "mean", "mean", "max"))
    return make.add(op, x, shape=(), most=x.most)


@step("total", 1)
def scaled_by_norm(make: Builder, x: Tensor) -> Tensor:
    """Divides by the norm of the whole tensor: x / ‖x‖."""
    plain(x)
    need(x.rank >= 2 and make.dtype == "f32")
    length = make.add("linalg_vector_norm", x, shape=(), positive=True, most=1e3)
    return make.each("div.Tensor", x, length, most=1.0)


def partner_input(make: Builder, x: Tensor) -> Tensor:
    """Returns a new input with the shape and dtype of `x`. Raises Unfit if there are too many inputs or `x` has no
    batch dimension."""
    if len(make.inputs) >= 4 or x.shape[0] != FREE:
        raise Unfit
    return make.input(x.shape, x.dtype)
