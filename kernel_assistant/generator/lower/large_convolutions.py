"""Handles convolutions of tensors with more elements than cuDNN supports.

If the filter has one element, the convolution becomes a product, which cuBLASLt computes at any size. Any other such
convolution is left to PyTorch, which divides it into smaller ones.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.operators import PLAIN_CONVOLUTIONS, operator
from kernel_assistant.generator.ir.sizes import parse_size, product, shape_text, size_value
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.records import Node, TensorSpec
from kernel_assistant.records.graph import Operand

#: Elements that a tensor may have: cuDNN counts in 32 bits.
MOST_ELEMENTS = 2**31 - 1
#: Position, name and required value of the arguments that a product does not have.
_ARGUMENTS = ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1), (6, "groups", 1))


def is_large(spec: TensorSpec, dims: dict[str, int]) -> bool:
    """Whether a tensor has more elements than cuDNN supports. `dims` maps free dimensions (sizes that only a call
    determines) to their values."""
    return size_value(product([parse_size(size) for size in spec.shape]), dims) > MOST_ELEMENTS


def as_product(writer: NodeWriter) -> list[Node]:
    """Returns the nodes that replace a large 1×1 convolution: out [N, K, P] = w [K, C] · x [N, C, P], then the addition
    of the bias. Returns an empty list if the convolution is not 1×1, or not large."""
    node = writer.node
    if operator(node) not in PLAIN_CONVOLUTIONS:
        return []
    x, w = (writer.spec(operand) for operand in node.args[:2])
    plain = all(is_each(writer.argument(index, name, value), value) for index, name, value in _ARGUMENTS) and not any(
        spec.strides for spec in (x, w, node.spec)
    )
    if not plain or set(w.shape[2:]) != {"1"} or len(x.shape) != len(w.shape):
        return []
    if not any(is_large(spec, writer.graph.dims) for spec in (x, node.spec)):
        return []
    batch, inner, *pixels = x.shape
    count = shape_text(product([parse_size(size) for size in pixels]))
    outer = w.shape[0]
    filters = writer.view(node.args[1], (outer, inner), node.spec.dtype)
    images = writer.view(node.args[0], (batch, inner, count), node.spec.dtype)
    out = writer.typed(node.spec.dtype, "matmul", filters, images, shape=(batch, outer, count))
    bias = writer.argument(2, "bias")
    if bias is not None:
        shift = writer.view(bias, (outer, "1"), node.spec.dtype)
        out = writer.typed(node.spec.dtype, "add.Tensor", out, shift, shape=(batch, outer, count))
    return writer.ended(writer.view(out, node.spec.shape, node.spec.dtype))


def is_each(value: Operand, wanted: int) -> bool:
    """Whether a number, or each number of a list, equals `wanted`."""
    return value == wanted or (isinstance(value, list) and set(value) == {wanted})
