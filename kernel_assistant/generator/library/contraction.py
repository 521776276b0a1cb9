"""Writes products of two tensors as one (batched) matrix product that cuBLASLt computes without copies.

A product is described with a label for each dimension, as in einsum. A label of both operands and the result is a batch
dimension; a label of one operand and the result is a row or column dimension; a label of both operands but not the
result is summed over.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.sizes import Size, mul, size_text
from kernel_assistant.generator.loops.strided import View


@dataclass(frozen=True, slots=True)
class Product:
    """The product out = left · right, with one letter for each dimension of a tensor in its `labels`. The views
    describe how the tensors are laid out in memory.
    """

    left: View
    right: View
    out: View
    left_labels: str
    right_labels: str
    out_labels: str


@dataclass(frozen=True, slots=True)
class Matrix:
    """A batch of matrices in memory. `step` is the number of elements from a row to the next, or from a column to the
    next if `transposed`; `stride` is the number of elements from a matrix to the next.
    """

    transposed: bool
    step: Size
    stride: Size


@dataclass(frozen=True, slots=True)
class Matmul:
    """The sizes and operands of a launch of cuBLASLt. `groups` has the labels of the batch, row and column dimensions.
    `swapped` is True if the operands are exchanged because the result is transposed.
    """

    m: Size
    n: Size
    k: Size
    batch: Size
    a: Matrix
    b: Matrix
    out: Matrix
    groups: tuple[str, str, str]
    swapped: bool

    def sizes(self) -> dict[str, str]:
        """Returns the size arguments of the launch as C text, by name: `m`, `n`, `k`, `batch`, leading dimensions and
        strides."""
        values = {"m": self.m, "n": self.n, "k": self.k, "batch": self.batch}
        operands = {"a": self.a, "b": self.b, "o": self.out}
        values |= {f"ld{letter}": matrix.step for letter, matrix in operands.items()}
        values |= {f"stride_{letter}": matrix.stride for letter, matrix in operands.items()}
        return {field: size_text(value) for field, value in values.items()}


def as_matmul(product: Product) -> Matmul:
    """Returns the sizes and operands with which cuBLASLt computes a product. Raises Unsupported if no single batched
    product computes it without copies."""
    if not product.out_labels:
        raise Unsupported("a product of two vectors is a sum")
    for outer in range(len(product.out_labels)):
        try:
            return _matmul(product, set(product.out_labels[:outer]))
        except Unsupported:
            continue
    return _matmul(product, set(product.out_labels))


def matrix_like(view: View, product: Product, matmul: Matmul) -> Matrix:
    """Returns the layout in memory of `view`, a tensor that the library adds to the result. Raises Unsupported if its
    shape is not that of the result, or if its rows are not dense.
    """
    matrix = None
    if view.sizes == product.out.sizes:
        matrix, _ = _matrix(view, product.out_labels, *matmul.groups)
    if matrix is None or matrix.transposed:
        raise Unsupported("what is added has another shape, or lies otherwise in memory")
    return matrix


def is_bias(view: View, product: Product, matmul: Matmul) -> bool:
    """Whether the added tensor `view` is a bias: a dense vector along the columns, the same for all rows."""
    labels = product.out_labels[len(product.out_labels) - len(view.sizes) :]
    _, _, columns = matmul.groups
    constant = all(
        label in columns or size == 1 or stride == 0
        for label, size, stride in zip(labels, view.sizes, view.strides, strict=True)
    )
    try:
        return constant and _merged(view, labels, columns) == (matmul.n, 1)
    except Unsupported:
        return False


def _matmul(product: Product, forced: set[str]) -> Matmul:
    """Does the same as `as_matmul`, with the labels in `forced` as batch dimensions, even if one operand lacks them."""
    batch, rows, columns, inner = _groups(product, forced)
    out, (count, m, n) = _matrix(product.out, product.out_labels, batch, rows, columns)
    operands = (product.left_labels, product.right_labels)
    for order in dict.fromkeys("".join(label for label in labels if label in inner) for labels in operands):
        try:
            left, (_, _, k) = _matrix(product.left, product.left_labels, batch, rows, order)
            right, (_, other, _) = _matrix(product.right, product.right_labels, batch, order, columns)
        except Unsupported:
            continue
        if k != other:
            raise Unsupported("sizes that are summed over differ")
        if not out.transposed:
            return Matmul(m, n, k, count, left, right, out, (batch, rows, columns), False)
        # outᵀ = rightᵀ · leftᵀ, and outᵀ has its rows one after the other.
        a, b, c = (Matrix(not one.transposed, one.step, one.stride) for one in (right, left, out))
        return Matmul(n, m, k, count, a, b, c, (batch, columns, rows), True)
    raise Unsupported("an operand lies otherwise in memory")


def _groups(product: Product, forced: set[str]) -> tuple[str, str, str, str]:
    left, right, out = set(product.left_labels), set(product.right_labels), product.out_labels
    batch = "".join(label for label in out if (label in left and label in right) or label in forced)
    rows = "".join(label for label in out if label in left - right and label not in batch)
    columns = "".join(label for label in out if label in right - left and label not in batch)
    inner = "".join(sorted((left & right) - set(out)))
    if (left | right) != set(out) | set(inner) or len(set(out)) != len(out):
        raise Unsupported("a sum over a dimension of one operand")
    return batch, rows, columns, inner


def _matrix(view: View, labels: str, batch: str, rows: str, columns: str) -> tuple[Matrix, tuple[Size, Size, Size]]:
    """Returns `view` as a batch of matrices `rows` × `columns`, and the sizes of batch, rows and columns. Raises
    Unsupported if neither rows nor columns are dense.
    """
    count, stride = _merged(view, labels, batch)
    height, down = _merged(view, labels, rows)
    width, across = _merged(view, labels, columns)
    sizes = (count, height, width)
    if across == 1 or width == 1:
        step = width if height == 1 else down
        if step != 0:
            return Matrix(False, step, stride), sizes
    if down == 1 or height == 1:
        step = height if width == 1 else across
        if step != 0:
            return Matrix(True, step, stride), sizes
    raise Unsupported("no dimension of a matrix is dense")


def _merged(view: View, labels: str, group: str) -> tuple[Size, Size]:
    """Returns the size and stride of a single dimension that joins the dimensions with the labels `group`. A dimension
    that the operand does not have has stride 0. Raises Unsupported if no single stride exists.
    """
    size: Size = 1
    step: Size | None = None
    for label in reversed(group):
        at = labels.find(label)
        extent, stride = (view.sizes[at], view.strides[at]) if at >= 0 else (None, 0)
        if extent == 1:
            continue
        if extent is None:
            if step not in (None, 0):
                raise Unsupported("an operand that repeats inside a batch")
            step = 0
            continue
        if step is not None and stride != mul(size, step):
            raise Unsupported("dimensions that do not follow one another in memory")
        step = stride if step is None else step
        size = mul(size, extent)
    return size, 0 if step is None else step
