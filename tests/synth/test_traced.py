"""The graphs that were traced from PyTorch's operators, and the pairs that are made of them."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.records.canonical import canonical
from kernel_assistant_training.source import training_sources
from kernel_assistant_training.synth.conversations import drawn
from kernel_assistant_training.synth.memory import fitted
from kernel_assistant_training.synth.narrow import Narrow
from kernel_assistant_training.synth.split import split_of
from kernel_assistant_training.synth.traced.graphs import traced_graphs
from kernel_assistant_training.tasks.graphs import DrawsRandomNumbersError, graph_of, traced
from kernel_assistant_training.tasks.stream import COMPOSED, StreamSource, Texts

COUNTED = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(5), nn.Dropout()
    def forward(self, x):
        return {}
def get_inputs():
    return [torch.rand(4, 5)]
def get_init_inputs():
    return []
"""


def test_splits_are_those_of_the_graphs_and_no_graph_comes_twice() -> None:
    train, held_out = traced_graphs("train"), traced_graphs("held_out")
    keys = [canonical(one.graph).key() for one in (*train, *held_out)]
    assert len(set(keys)) == len(keys) > 1000
    some = [*train[::40], *held_out]
    assert all(split_of(one.graph, canonical(one.graph).key()) == one.split for one in some)
    assert not any(one.text for one in train) and all(one.text for one in held_out)


def test_the_text_of_a_held_out_task_is_traced_to_its_graph() -> None:
    for one in traced_graphs("held_out")[::12]:
        assert canonical(graph_of(one.text)).key() == canonical(one.graph).key()


def test_modules_are_traced_in_eval_mode_and_none_draws_random_numbers() -> None:
    (norm, _) = graph_of(COUNTED.format("self.drop(self.norm(x))")).nodes
    assert norm.op == "_native_batch_norm_legit_no_training"
    with pytest.raises(DrawsRandomNumbersError):
        graph_of(COUNTED.format("torch.bernoulli(x)"))


def test_a_stream_of_graphs_leaves_out_what_came_before() -> None:
    texts, numbers = Texts(StreamSource(7, "cpu", blocks=0, variants=1)), range(COMPOSED + 1, COMPOSED + 9)
    first = list(traced(texts, [*numbers, *numbers], float("inf")))
    assert first and len({one.number for one in first}) == len(first)
    known = {canonical(one.graph).key() for one in first}
    assert not list(traced(texts, numbers, float("inf"), known)) and not list(traced(texts, numbers, 0.0))


@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_pairs_are_made_of_them(target: str) -> None:
    yields: Counter[str] = Counter()
    made = list(islice(drawn(3, target, yields, traced_share=1.0), 60))
    known = {canonical(one.graph).key() for one in traced_graphs("train")}
    assert {pair.task.key() for pair in made} <= known and not any(pair.steps for pair in made)
    assert not any("// call:" in pair.source for pair in made)
    assert yields["train"] > 0.7 * yields["drawn"]
    mixed = [bool(pair.steps) for pair in islice(drawn(3, target, Counter(), traced_share=0.4), 120)]
    assert 40 < sum(mixed) < 110
    narrow = Narrow.of("softmax", 1)
    assert all(pair.steps for pair in islice(drawn(3, target, Counter(), narrow, traced_share=1.0), 6))


def test_a_share_that_leaves_nothing_else_is_refused() -> None:
    with pytest.raises(UsageError, match="no share below 1"):
        training_sources(traced_share=1.0)


def test_what_no_batch_size_fits_is_left_out() -> None:
    random = Random(0)
    fits = [fitted(one.graph, "cuda", random) for one in traced_graphs("train")[:300]]
    assert 200 < sum(graph is not None for graph in fits) < 300
