"""Compositions: their texts give the graphs from which they were written, belong to training tasks, are short, and
contain the requested operators.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import islice
from random import Random
from typing import Any

import msgspec
import pytest

from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.worker.graph.export import export_graph
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.source import mixed, training_sources
from kernel_assistant_training.synth.composing import MOST, SYSTEM, asked, compositions, drawn
from kernel_assistant_training.synth.digests import specs_of
from kernel_assistant_training.synth.memory import elements
from kernel_assistant_training.synth.readable import BATCH, operators
from kernel_assistant_training.synth.split import split
from kernel_assistant_training.tasks.candidates.composer import read_answer
from kernel_assistant_training.tasks.used import plain, used
from kernel_assistant_training.tokenizer import VOCABULARY, load
from tests.training.conversations import sums

#: Largest value in the graphs that are traced here, in elements; and the most tokens of an answer.
MOST_ELEMENTS, MOST_TOKENS = 200_000, 400


def test_a_text_is_its_graph_and_uses_what_it_declares() -> None:
    seen = 0
    for graph, text in drawn(Random(3), Counter()):
        sized = msgspec.structs.replace(graph, dims={"B": 5})
        if max(elements(one, sized.dims) for one in specs_of(sized).values()) > MOST_ELEMENTS:
            continue
        names: dict[str, Any] = {}
        exec(text.replace(f"BATCH = {BATCH}", "BATCH = 5"), names)
        model, inputs = names["Model"]().eval().requires_grad_(False), tuple(names["get_inputs"]())
        traced = from_builtins(export_graph(model, inputs, {}), OpGraph)
        assert canonical(traced).text() == canonical(graph).text()
        assert split(canonical(traced)) == "train"
        assert {plain(name) for name in operators(graph)} <= used(model, inputs)
        if (seen := seen + 1) == 14:
            return


def test_a_conversation_names_operators_that_the_answer_declares() -> None:
    encoder = Encoder(load(VOCABULARY))
    for messages in islice(compositions(0), 300):
        system, question, answer = messages
        assert system.content == SYSTEM
        wanted, given = question.content.splitlines()
        task = read_answer(answer.content, "model", 0)
        assert sorted(task.operators) == sorted(wanted.split(", "))
        assert 2 <= len(task.operators) <= MOST
        assert given.startswith("[")
        assert sum(encoder.encode(messages).learned) <= MOST_TOKENS


def test_streams_are_their_seeds() -> None:
    first, again, other = (list(islice(compositions(seed), 5)) for seed in (1, 1, 2))
    assert first == again != other


def test_every_question_could_be_answered() -> None:
    written = {name for graph, _ in islice(drawn(Random(0), Counter()), 1500) for name in operators(graph)}
    for number in range(300):
        names, given = asked(Random(number))[1].content.splitlines()
        assert set(names.split(", ")) <= written
        assert given.startswith("[B,")


def test_a_share_of_conversations_is_from_the_rarer_source() -> None:
    both = islice(mixed(0, most=sums, rest=compositions, share=0.1, part=0), 1000)
    found = Counter(messages[0].content for messages in both)
    assert found[SYSTEM] == pytest.approx(100, abs=30)
    assert found.total() == 1000
    none = islice(partial(mixed, most=sums, rest=compositions, share=0.0, part=0)(0), 100)
    assert all(messages[0].content != SYSTEM for messages in none)


def test_sources_of_one_process_do_not_repeat_each_other() -> None:
    first, second = (
        [messages[2].content for messages in islice(source(7), 150) if messages[0].content == SYSTEM]
        for source in training_sources(0.4)
    )
    assert min(len(first), len(second)) > 40
    assert len(set(first) & set(second)) <= 1
