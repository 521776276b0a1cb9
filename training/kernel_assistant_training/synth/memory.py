"""How much memory a task moves, and base sizes with which it suits a machine."""

from __future__ import annotations

import math
from random import Random

import msgspec

from kernel_assistant.records import OpGraph, TensorSpec
from kernel_assistant.records.graph import DTYPE_BYTES

#: Bytes of inputs and outputs together of tasks that are run: enough to be timed, little enough to be opened quickly.
WINDOW = {"cpu": (1 << 20, 64 << 20), "cuda": (8 << 20, 512 << 20)}
#: Bytes of any value of the graph. Those in between count in no traffic, and eager PyTorch writes them all the same: of
#: 4,000 tasks for a GPU 17 had one above 1 GiB, the largest 94 GiB.
LARGEST = {target: 2 * most for target, (_, most) in WINDOW.items()}


def elements(spec: TensorSpec, dims: dict[str, int]) -> int:
    """Of a value whose sizes are products, which is all that the sampler makes."""
    return math.prod(size_at(size, dims) for size in spec.shape)


def spec_bytes(spec: TensorSpec, dims: dict[str, int]) -> int:
    return DTYPE_BYTES[spec.dtype] * elements(spec, dims)


def traffic(graph: OpGraph) -> int:
    """Bytes of inputs, parameters and outputs at the base sizes."""
    specs = [*(value.spec for value in graph.inputs), *map(graph.spec, graph.outputs)]
    return sum(spec_bytes(spec, graph.dims) for spec in specs)


def largest(graph: OpGraph) -> int:
    """Bytes of the largest value at the base sizes."""
    return max(spec_bytes(spec, graph.dims) for spec in _specs(graph))


def fitted(graph: OpGraph, target: str, random: Random) -> OpGraph | None:
    """The graph with a size of B that puts its traffic into the target's window and no value above the largest; None
    where there is none."""
    low, high = WINDOW[target]
    at = {size: traffic(msgspec.structs.replace(graph, dims={"B": size})) for size in (1, 2)}
    each = at[2] - at[1]
    if each <= 0:
        return graph if low <= at[1] <= high and largest(graph) <= LARGEST[target] else None
    least, most = max(2, -(-(low - at[1]) // each) + 1), (high - at[1]) // each + 1
    most = min(most, _most_with_room(graph, LARGEST[target]))
    if least > most:
        return None
    wanted = round(2.0 ** random.uniform(math.log2(least), math.log2(most)))
    power = 1 << round(math.log2(wanted))
    found = power if least <= power <= most and random.random() < 0.7 else wanted
    return msgspec.structs.replace(graph, dims={"B": found})


def _most_with_room(graph: OpGraph, room: int) -> int:
    """The largest B with which every value has `room` bytes at most: each grows with B, or not at all. 0 for none."""
    found = 1 << 62
    for spec in _specs(graph):
        first, second = (spec_bytes(spec, {"B": size}) for size in (1, 2))
        if second > first:
            found = min(found, (room - first) // (second - first) + 1)
        elif first > room:
            return 0
    return max(found, 0)


def _specs(graph: OpGraph) -> list[TensorSpec]:
    return [*(value.spec for value in graph.inputs), *(node.spec for node in graph.nodes)]


def size_at(text: str, dims: dict[str, int]) -> int:
    """Value of a product of numbers and free dimensions."""
    if text.isdigit():
        return int(text)
    return math.prod(int(one) if one.isdigit() else dims[one] for one in text.split("*"))
