"""Describes convolutions in the form that cuDNN accepts: sizes, static settings and memory layout."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.operators import PLAIN_CONVOLUTIONS
from kernel_assistant.generator.ir.sizes import product, size_text, size_value
from kernel_assistant.generator.library.products import argument
from kernel_assistant.generator.loops.strided import Resolver, View
from kernel_assistant.generator.lower.depthwise import is_ours
from kernel_assistant.generator.lower.large_convolutions import MOST_ELEMENTS
from kernel_assistant.records import Node
from kernel_assistant.records.graph import Operand

#: What the name of a convolution ends in that PyTorch has with channels first.
TURNED = ".channels_last"
_FORWARD = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_GENERAL = ("input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups")
CONVOLUTIONS = {
    **dict.fromkeys(PLAIN_CONVOLUTIONS, _FORWARD),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _TRANSPOSED),
    "convolution": _GENERAL,
}


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution without the operators fused after it. The views describe how the tensors are laid out in memory;
    `sizes` and `settings` are the arguments and settings of the launch.
    """

    x: View
    w: View
    out: View
    transposed: bool
    sizes: dict[str, str]
    settings: dict[str, str]


def read_convolution(node: Node, values: Resolver) -> Convolution:
    """Returns the convolution that `node` computes. Raises Unsupported if the node is no convolution, or if cuDNN
    cannot compute it without copies.
    """
    names = CONVOLUTIONS.get(node.op.partition(".")[0])
    if names is None:
        raise Unsupported(f"{node.op} is not a convolution")
    given = {name: argument(node, at, name) for at, name in enumerate(names)}
    x, w, out = values.view(given["input"]), values.view(given["weight"]), values.buffer(node.name)
    if any(size_value(product(view.sizes), values.dims) > MOST_ELEMENTS for view in (x, w, out)):
        raise Unsupported("a convolution of more elements than cuDNN counts")
    rank = len(w.sizes) - 2
    if not 1 <= rank <= 3 or len(x.sizes) != rank + 2 or len(out.sizes) != rank + 2:
        raise Unsupported("a convolution without a batch")
    if given["bias"] is not None:
        raise Unsupported("a convolution that has not been expanded")
    stride, dilation = (_integers(given[key], rank, 1) for key in ("stride", "dilation"))
    if not all(isinstance(size, int) for size in (*w.sizes, x.sizes[1])):
        raise Unsupported("a filter whose size is not known")
    kernel = [size for size in w.sizes[2:] if isinstance(size, int)]
    transposed = names is _TRANSPOSED or bool(given.get("transposed"))
    (groups,) = _integers(given["groups"], 1, 1)
    letters = {"i": x.sizes[2:], "f": w.sizes[2:], "o": out.sizes[2:]}
    sizes = {"n": size_text(x.sizes[0]), "c": size_text(x.sizes[1]), "k": size_text(out.sizes[1])}
    sizes |= {
        f"{letter}{at}": size_text(size) for letter, spatial in letters.items() for at, size in enumerate(spatial)
    }
    if not transposed and is_ours(node, w.sizes, groups):
        raise Unsupported("a depthwise convolution, which our kernels compute")
    layout = _layout((x, w, out), rank)
    settings = {
        "stride": _text(stride),
        "padding": _text(_padding(given["padding"], kernel, dilation, rank)),
        "dilation": _text(dilation),
        "groups": str(groups),
        "layout": layout,
        "given": "nchw" if node.op.endswith(TURNED) else layout,
    }
    return Convolution(x, w, out, transposed, sizes, settings)


def is_channel_bias(view: View, channels: int) -> bool:
    """Whether the added tensor `view` is a dense vector along the channels, the same at all other positions. `channels`
    is the rank of the result [N, C, spatial …]; the last dimensions of `view` are aligned with those of the result.
    """
    rank = len(view.sizes)
    at = rank - channels + 1
    if rank < channels - 1 or at < 0:
        return False
    return view.strides[at] == 1 and all(
        size == 1 or (stride == 0 and dim != at)
        for dim, (size, stride) in enumerate(zip(view.sizes, view.strides, strict=True))
        if dim != at
    )


def _layout(views: tuple[View, ...], rank: int) -> str:
    order = list(range(rank + 2))
    if all(view.is_laid_out(order) for view in views):
        return "nchw"
    if rank > 1 and all(view.is_laid_out([0, *order[2:], 1]) for view in views):
        return "nhwc"
    raise Unsupported("operands of a convolution in different layouts")


def _padding(operand: Operand, kernel: list[int], dilation: list[int], rank: int) -> list[int]:
    if operand == "same":
        spans = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
        if any(span % 2 for span in spans):
            raise Unsupported("padding that differs between the two sides")
        return [span // 2 for span in spans]
    return _integers(0 if operand == "valid" else operand, rank, 0)


def _integers(operand: Operand, rank: int, default: int) -> list[int]:
    """Returns the operand as a list of `rank` integers, one for each spatial dimension; a single number counts for all,
    and None means `default`. Raises Unsupported for other operands."""
    items = [default] if operand is None else operand if isinstance(operand, list) else [operand]
    integers = [item for item in items if isinstance(item, int)]
    if len(integers) != len(items) or len(integers) not in (1, rank):
        raise Unsupported(f"{operand!r} for {rank} dimensions")
    return integers * rank if len(integers) == 1 else integers


def _text(values: list[int]) -> str:
    return ",".join(str(int(value)) for value in values)
