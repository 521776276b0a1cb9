"""Computes the memory traffic of a task (bytes of inputs and outputs), and batch sizes with which the traffic suits a
device."""

from __future__ import annotations

import math
from random import Random

import msgspec

from kernel_assistant.records import OpGraph, TensorSpec
from kernel_assistant.records.graph import DTYPE_BYTES

#: The least and the most bytes of a task's inputs and outputs: enough to be timed, few enough to be opened quickly.
WINDOW = {"cpu": (1 << 20, 64 << 20), "cuda": (8 << 20, 512 << 20)}
#: Most bytes of any value of the graph. Intermediate values are not part of the traffic, but eager PyTorch writes them:
#: of 4,000 tasks for a GPU 17 had one above 1 GiB, the largest 94 GiB.
LARGEST = {target: 2 * most for target, (_, most) in WINDOW.items()}


def elements(spec: TensorSpec, dims: dict[str, int]) -> int:
    """Returns the number of elements of a tensor. `dims` has the sizes of the free dimensions. Each size must be a
    product of numbers and free dimensions, as the sampler makes them."""
    return math.prod(size_at(size, dims) for size in spec.shape)


def spec_bytes(spec: TensorSpec, dims: dict[str, int]) -> int:
    return DTYPE_BYTES[spec.dtype] * elements(spec, dims)


def traffic(graph: OpGraph) -> int:
    """Returns the bytes of inputs, parameters and outputs together, for the sizes in `graph.dims`."""
    specs = [*(value.spec for value in graph.inputs), *map(graph.spec, graph.outputs)]
    return sum(spec_bytes(spec, graph.dims) for spec in specs)


def largest(graph: OpGraph) -> int:
    """Returns the bytes of the largest value, for the sizes in `graph.dims`."""
    return max(spec_bytes(spec, graph.dims) for spec in _specs(graph))


def fitted(graph: OpGraph, target: str, random: Random) -> OpGraph | None:
    """Returns the graph with a random size of the free dimension B (the batch size) for which its memory traffic lies
    in the target's range and no value has more than `LARGEST` bytes. None if there is no such size."""
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
    batch = power if least <= power <= most and random.random() < 0.7 else wanted
    return msgspec.structs.replace(graph, dims={"B": batch})


def _most_with_room(graph: OpGraph, room: int) -> int:
    """Returns the largest batch size B for which every value has at most `room` bytes; 0 if there is none. Assumes that
    the size of a value grows linearly with B or does not depend on B."""
    batch = 1 << 62
    for spec in _specs(graph):
        first, second = (spec_bytes(spec, {"B": size}) for size in (1, 2))
        if second > first:
            batch = min(batch, (room - first) // (second - first) + 1)
        elif first > room:
            return 0
    return max(batch, 0)


def _specs(graph: OpGraph) -> list[TensorSpec]:
    return [*(value.spec for value in graph.inputs), *(node.spec for node in graph.nodes)]


def size_at(text: str, dims: dict[str, int]) -> int:
    """Returns the value of a size such as `B*16`, a product of numbers and free dimensions, whose sizes are in
    `dims`."""
    if text.isdigit():
        return int(text)
    return math.prod(int(one) if one.isdigit() else dims[one] for one in text.split("*"))
