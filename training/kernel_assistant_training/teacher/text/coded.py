"""Sizes that can be recognized in quotients, for loops that can only be built with numbers as sizes.

A group norm over D0 = 16 channels in 4 groups has 4 channels a group. Written as 4, nobody could tell which size that
is. With 4 * 10007 channels the quotient is 10007, which only D0 / 4 gives.
"""

from __future__ import annotations

from math import lcm

import msgspec

from kernel_assistant.generator.lower.pointwise import BINARY, COMPARE, PARAMETRIC, SPECIAL, UNARY
from kernel_assistant.records.canonical import Canonical

#: Operators whose sizes do not depend on each other, so that any numbers are valid.
_FREE = {*UNARY, *PARAMETRIC, *COMPARE, *SPECIAL, *BINARY} | set(
    "group_norm instance_norm layer_norm rms_norm _native_batch_norm_legit_no_training getitem softmax log_softmax "
    "logsumexp linalg_vector_norm sum mean amax amin clone _to_copy".split()
)
#: Larger than any literal of a graph.
_PRIMES = (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079, 10091, 10093, 10099, 10103, 10111, 10133, 10139)


def coded(task: Canonical) -> Canonical | None:
    """The task with such sizes. None if nothing is divided, or if sizes depend on each other."""
    graph = task.graph
    if any(node.op.partition(".")[0] not in _FREE for node in graph.nodes) or len(task.sizes) > len(_PRIMES):
        return None
    sizes = dict(zip(task.sizes, _PRIMES, strict=False))
    divided = False
    for node in graph.nodes:
        if node.op != "group_norm":
            continue
        channels, groups = node.spec.shape[1], node.args[1]
        if channels not in sizes or channels == groups:
            continue
        divided = True
        by = sizes[groups] if isinstance(groups, str) and groups in sizes else groups
        if not isinstance(by, int):
            return None
        sizes[channels] = lcm(by, sizes[channels])
    return msgspec.structs.replace(task, sizes=sizes) if divided else None
