"""Computes strides as torch does: for contiguous tensors, for views, and for results of elementwise operators."""

from __future__ import annotations

from kernel_assistant_training.synth.sizes import Shape, Strides


def contiguous(shape: Shape) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def is_contiguous(shape: Shape, strides: tuple[int, ...]) -> bool:
    """Whether the strides are contiguous as torch defines it: the stride of a dimension of size 1 does not matter."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def permuted(shape: Shape, strides: Strides, order: tuple[int, ...]) -> tuple[Shape, tuple[int, ...]]:
    """Returns the shape and the strides after the dimensions are permuted into the order `order`."""
    steps = strides or contiguous(shape)
    return tuple(shape[dim] for dim in order), tuple(steps[dim] for dim in order)


def broadcast(shapes: list[Shape]) -> Shape:
    """Returns the shape to which the shapes broadcast. Raises ValueError if they do not broadcast."""
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for index, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                if result[index] not in (1, size):
                    raise ValueError(f"{shapes} do not broadcast")
                result[index] = size
    return tuple(result)


def elementwise_strides(operands: list[tuple[Shape, Strides]]) -> tuple[Shape, Strides]:
    """Returns the shape and the strides (None: contiguous) of an elementwise operator's result, for operands as pairs
    (shape, strides).

    As in torch's TensorIterator: if all operands have the same shape and the same dense strides, the result has these
    strides. Otherwise dimensions are sorted by the operands' strides, the first operand first, and packed in this
    order.
    """
    shape = broadcast([one[0] for one in operands])
    if all(strides is None for _, strides in operands):
        return shape, None
    full = {strides or contiguous(own) for own, strides in operands if own == shape}
    if len(full) == 1 and all(own == shape for own, _ in operands):
        (only,) = full
        if _is_dense(shape, only):
            return shape, only
    steps = [_expanded(own, strides, shape) for own, strides in operands]
    order = list(reversed(range(len(shape))))
    for last in range(1, len(shape)):
        moving = last
        for index in reversed(range(last)):
            swap = _swaps(shape, steps, order[index], order[moving])
            if swap > 0:
                order[index], order[moving] = order[moving], order[index]
                moving = index
            elif swap < 0:
                break
    packed, step = [0] * len(shape), 1
    for dim in order:
        packed[dim] = step
        step *= shape[dim]
    return shape, None if is_contiguous(shape, tuple(packed)) else tuple(packed)


def _swaps(shape: Shape, operands: list[tuple[int, ...]], inner: int, outer: int) -> int:
    for strides in operands:
        one, other = strides[inner], strides[outer]
        if one == 0 or other == 0:
            continue
        if one != other:
            return 1 if one > other else -1
        if shape[inner] > shape[outer]:
            return 1
    return 0


def _expanded(shape: Shape, strides: Strides, to: Shape) -> tuple[int, ...]:
    steps = strides or contiguous(shape)
    missing = len(to) - len(shape)
    own = zip(shape, steps, to[missing:], strict=True)
    return (*[0] * missing, *(0 if size == 1 and wide != 1 else step for size, step, wide in own))


def _is_dense(shape: Shape, strides: tuple[int, ...]) -> bool:
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True
