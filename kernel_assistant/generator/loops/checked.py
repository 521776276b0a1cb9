"""Lists the families of loop nests (kinds of kernels), and checks whether one loop nest can compute a graph."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import lru_cache

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.graph_text import read_graph, write_graph
from kernel_assistant.generator.ir.labels import CANONICAL
from kernel_assistant.generator.ir.sizes import fixed
from kernel_assistant.generator.loops.nest import LoopNest, build_nest
from kernel_assistant.records import OpGraph
from kernel_assistant.records.graph import DTYPE_BYTES

#: Each has its place in shared memory; a window over normalized values has one for each of its positions.
MOST_REDUCTIONS = 12
#: A window inside a window is written out for each pair of their positions. So many loads are a text of 150 KB. A graph
#: that itself is long may have some for each of its nodes.
MOST_LOADS, LOADS_OF_A_NODE = 512, 4

#: With more channels PyTorch, which finds the position of a sample once for all of them, is faster on a CPU.
MOST_SAMPLED_CHANNELS = 16


class Family(str, Enum):
    pointwise = "pointwise"
    rows = "rows"
    cols = "cols"
    scan = "scan"
    parts = "parts"
    window = "window"


def checked_nest(graph: OpGraph, target: str) -> LoopNest:
    """Returns the loop nest (the loops of one kernel) of a graph, as a copy that the caller may change. Raises
    Unsupported if no single nest can compute the graph."""
    nest = _nest_of(tuple(write_graph(graph)), target)
    if isinstance(nest, str):
        raise Unsupported(nest)
    outer, reduced, inner = [*nest.outer], [*nest.reduced], [*nest.inner]
    return replace(nest, outer=outer, reduced=reduced, inner=inner, varies=set(nest.varies))


# Each schedule of a graph asks again.
@lru_cache(maxsize=128)
def _nest_of(lines: tuple[str, ...], target: str) -> LoopNest | str:
    """Returns the nest of a graph, which is given as lines of text, or the reason why no single nest computes it."""
    try:
        return _checked(read_graph(list(lines)), target)
    except Unsupported as error:
        return str(error)


def _checked(graph: OpGraph, target: str) -> LoopNest:
    if target not in ("cpu", "cuda"):
        raise Unsupported(f"target {target!r}")
    for value in graph.inputs:
        if not CANONICAL.fullmatch(value.name):
            raise Unsupported(f"input name {value.name!r}")
        if value.spec.dtype not in DTYPE_BYTES:
            raise Unsupported(f"dtype {value.spec.dtype}")
    if not graph.outputs:
        raise Unsupported("no outputs")
    if target == "cpu":
        _leave_samples(graph)
    nest = build_nest(graph)
    if len(nest.reduces) > MOST_REDUCTIONS:
        raise Unsupported(f"{len(nest.reduces)} reductions in one kernel")
    if len(nest.loads) > max(MOST_LOADS, LOADS_OF_A_NODE * (len(graph.nodes) + len(graph.inputs))):
        raise Unsupported(f"{len(nest.loads)} loads in one kernel")
    return nest


def _leave_samples(graph: OpGraph) -> None:
    """Raises Unsupported if the graph has a `grid_sampler` of an image with over MOST_SAMPLED_CHANNELS channels."""
    for node in graph.nodes:
        channels = fixed(node.spec.shape[1]) if node.op.startswith("grid_sampler") else None
        if channels is not None and channels > MOST_SAMPLED_CHANNELS:
            raise Unsupported(f"operator {node.op}: {channels} channels are PyTorch's on a CPU")
