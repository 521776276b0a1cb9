"""The graphs that were traced from PyTorch's operators, and the pairs that are made of them."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest

from kernel_assistant.records.canonical import canonical
from kernel_assistant_training.synth.conversations import drawn
from kernel_assistant_training.synth.digest_kernelbench import traces
from kernel_assistant_training.synth.narrow import Narrow
from kernel_assistant_training.synth.split import split_of
from kernel_assistant_training.synth.traced import fitting, traced_graphs


def test_splits_are_those_of_the_graphs_and_no_graph_comes_twice() -> None:
    train, held_out = traced_graphs("train"), traced_graphs("held_out")
    keys = [canonical(one.graph).key() for one in (*train, *held_out)]
    assert len(set(keys)) == len(keys) > 1000
    some = [*train[::40], *held_out]
    assert all(split_of(one.graph, canonical(one.graph).key()) == one.split for one in some)
    assert not any(one.text for one in train) and all(one.text for one in held_out)


@pytest.mark.parametrize("which", [0, -1])
def test_the_text_of_a_held_out_task_is_traced_to_its_graph(which: int) -> None:
    one = traced_graphs("held_out")[which]
    assert canonical(next(traces(one.text, "task"))).key() == canonical(one.graph).key()


@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_pairs_are_made_of_them(target: str) -> None:
    yields: Counter[str] = Counter()
    made = list(islice(drawn(3, target, yields, traced_share=1.0), 60))
    known = {canonical(one.graph).key() for one in traced_graphs("train")}
    assert {pair.task.key() for pair in made} <= known and not any(pair.steps for pair in made)
    assert yields["train"] > 0.7 * yields["drawn"]
    mixed = [bool(pair.steps) for pair in islice(drawn(3, target, Counter(), traced_share=0.4), 120)]
    assert 40 < sum(mixed) < 110
    narrow = Narrow.of("softmax", 1)
    assert all(pair.steps for pair in islice(drawn(3, target, Counter(), narrow, traced_share=1.0), 6))


def test_what_no_batch_size_fits_is_left_out() -> None:
    random = Random(0)
    fits = [fitting(one.graph, "cuda", random) for one in traced_graphs("train")[:300]]
    assert 200 < sum(graph is not None for graph in fits) < 300
