"""Elements that are counted as read, compared with the elements that really change an output."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

import msgspec
import pytest
import torch

from kernel_assistant.records import OpGraph
from kernel_assistant_training.synth import sample
from tests.worker.reading import Graph, left_out, unread
from tests.worker.reading_graphs import drawn

GRAPHS = 200
#: Of the graphs: what is zero by luck, cut off or far in the tail of a product hides what is read for all that.
LUCK = {"parts": 0.04, "tasks": 0.1}


def test_no_more_is_counted_than_is_read_and_no_less() -> None:
    """Operators that leave out parts of their operands, with other operators before and after them."""
    random = Random(5)
    _compared((drawn(random) for _ in range(GRAPHS)), LUCK["parts"])


@pytest.mark.programs
def test_so_it_is_for_tasks_of_the_sampler() -> None:
    _compared(_small(GRAPHS), LUCK["tasks"])


def _compared(graphs: Iterator[OpGraph], luck: float) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = [(graph, Graph(graph, seed)) for seed, graph in enumerate(graphs)]
        more = [f"{elements[:4]}\n{graph.text()}" for graph, ready in found if (elements := unread(ready))]
        less = [f"{names}\n{graph.text()}" for graph, ready in found if (names := left_out(ready))]
    finally:
        torch.set_num_threads(threads)
    assert not less, "\n".join(less)
    assert len(more) <= luck * GRAPHS, "\n".join(more)


def _small(count: int) -> Iterator[OpGraph]:
    """The tasks of the sampler that run quickly."""
    random = Random(3)
    while count:
        graph = msgspec.structs.replace(sample(random, 1 + count % 5), dims={"B": 2})
        shapes = [one.spec.shape for one in (*graph.inputs, *graph.nodes)]
        if max(math.prod(map(_size, shape)) for shape in shapes) <= 1 << 15:
            count -= 1
            yield graph


def _size(text: str) -> int:
    return math.prod(int(one.replace("B", "2")) for one in text.split("*"))
