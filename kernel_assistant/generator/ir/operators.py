"""Names of the graph's operators, and the set of those that cost nothing inside a loop."""

from __future__ import annotations

from kernel_assistant.records import Node

#: Operators that only give the elements of a contiguous tensor another shape.
RESHAPES = frozenset(
    "view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as reshape_as alias detach contiguous clone "
    "dropout feature_dropout lift_fresh_copy identity".split()
)
#: Convolutions that are not transposed, with the number of their spatial dimensions. The channels of the result come
#: first in their filters.
PLAIN_CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
#: The operator of a copy: its value is written even though it is only another arrangement of one.
COPY = "ka_copy"
#: The operator of a float32 value without the mantissa's bits that TF32 does not have; 0 where it is not finite.
HIGH = "ka_high"
#: Operators that cost nothing inside a loop: every part that reads them has its own.
FREE = RESHAPES | frozenset(
    "expand expand_as broadcast_to transpose t swapaxes permute slice narrow select flip split split_with_sizes chunk "
    "unsafe_split unsafe_chunk broadcast_tensors arange full full_like ones ones_like zeros zeros_like "
    "scalar_tensor empty empty_like new_empty new_zeros new_ones new_full".split()
)


def operator(node: Node) -> str:
    """Returns the operator's name without its overload: `sum` for `sum.dim_IntList`."""
    return node.op.partition(".")[0]
