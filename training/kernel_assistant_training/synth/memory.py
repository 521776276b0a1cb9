"""How much memory a task moves, and base sizes with which it suits a machine."""

from __future__ import annotations

import math
from random import Random

import msgspec

from kernel_assistant.records import OpGraph, TensorSpec
from kernel_assistant.records.graph import DTYPE_BYTES

#: Bytes of inputs and outputs together of tasks that are run: enough to be timed, little enough to be opened quickly.
WINDOW = {"cpu": (1 << 20, 64 << 20), "cuda": (8 << 20, 512 << 20)}


def elements(spec: TensorSpec, dims: dict[str, int]) -> int:
    """Of a value whose sizes are products, which is all that the sampler makes."""
    return math.prod(size_at(size, dims) for size in spec.shape)


def spec_bytes(spec: TensorSpec, dims: dict[str, int]) -> int:
    return DTYPE_BYTES[spec.dtype] * elements(spec, dims)


def traffic(graph: OpGraph) -> int:
    """Bytes of inputs, parameters and outputs at the base sizes."""
    specs = [*(value.spec for value in graph.inputs), *map(graph.spec, graph.outputs)]
    return sum(spec_bytes(spec, graph.dims) for spec in specs)


def fitted(graph: OpGraph, target: str, random: Random) -> OpGraph | None:
    """The graph with a size of B that puts its traffic into the target's window; None where there is none."""
    low, high = WINDOW[target]
    at = {size: traffic(msgspec.structs.replace(graph, dims={"B": size})) for size in (1, 2)}
    each = at[2] - at[1]
    if each <= 0:
        return graph if low <= at[1] <= high else None
    least, most = max(2, -(-(low - at[1]) // each) + 1), (high - at[1]) // each + 1
    if least > most:
        return None
    wanted = round(2.0 ** random.uniform(math.log2(least), math.log2(most)))
    power = 1 << round(math.log2(wanted))
    found = power if least <= power <= most and random.random() < 0.7 else wanted
    return msgspec.structs.replace(graph, dims={"B": found})


def size_at(text: str, dims: dict[str, int]) -> int:
    """Value of a product of numbers and free dimensions."""
    if text.isdigit():
        return int(text)
    return math.prod(int(one) if one.isdigit() else dims[one] for one in text.split("*"))
