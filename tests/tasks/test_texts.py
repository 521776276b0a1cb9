"""The written texts: crawled, composed, and composed by a language model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.policy.chat import ChatClient, ChatSettings
from kernel_assistant_training.options.commands import run_command
from kernel_assistant_training.synth.composing import asked, compositions
from kernel_assistant_training.tasks.candidates.compose import chainable, composed
from kernel_assistant_training.tasks.candidates.composer import Composer, Unreadable, read_answer
from kernel_assistant_training.tasks.candidates.crawl import Unbuilt, catalog
from kernel_assistant_training.tasks.candidates.operators import Operator
from kernel_assistant_training.tasks.candidates.writers import Writers
from kernel_assistant_training.tasks.candidates.writing import on_meta, with_batch
from kernel_assistant_training.tasks.records import TaskText
from kernel_assistant_training.tasks.shards import read_rows
from kernel_assistant_training.tasks.stage import SynthesisOptions, SynthesisSettings, synthesise
from kernel_assistant_training.tasks.stream import COMPOSED, StreamSource, Texts
from kernel_assistant_training.tasks.used import plain
from tests.policy.endpoint import Endpoint, says, served

ANSWER = """Here it is.
```python
# operators: torch.nn.functional.softplus, torch.Tensor.cumsum
import torch
from torch import nn
import torch.nn.functional as F

BATCH = 16

class Model(nn.Module):
    def forward(self, x):
        return F.softplus(x).cumsum(dim=1)

def get_inputs():
    return [torch.randn(BATCH, 515)]

def get_init_inputs():
    return []
```
"""


@pytest.fixture(scope="module")
def operators() -> list[Operator]:
    return catalog(0, 0)


@contextmanager
def answering(model: str, *answers: str) -> Iterator[tuple[Endpoint, ChatClient]]:
    """A server that gives these answers, and its client."""
    with served() as server:
        server.answers[:] = [says({"content": answer}) for answer in answers]
        client = ChatClient(ChatSettings(url=server.url, model=model))
        try:
            yield server, client
        finally:
            client.close()


SOURCE = StreamSource(seed=0, target="cuda", blocks=0, variants=1)


@pytest.mark.programs
def test_most_operators_of_torch_have_a_text(operators: list[Operator]) -> None:
    every = Texts(SOURCE)
    found = [every.of(number) for number in range(len(operators))]
    texts = [one for one in found if isinstance(one, TaskText)]
    assert len(found) == len(operators) > 500
    assert len(texts) > len(found) / 2
    assert all(one.reason for one in found if isinstance(one, Unbuilt))
    names = {name for one in texts for name in one.operators}
    assert {"torch.nn.LayerNorm", "torch.nn.functional.softmax", "torch.Tensor.cumsum", "torch.nn.Conv2d"} <= names
    assert found == [every.of(number) for number in range(len(operators))]


@pytest.mark.programs
@pytest.mark.slow
def test_writers_give_the_texts_in_their_order() -> None:
    every = Texts(SOURCE)
    done = set(range(3, len(every.operators) - 20)) | {COMPOSED + 1}
    numbers = list(islice(every.numbers(done), 60))
    assert numbers[:3] == [0, 1, 2] and numbers[-1] > COMPOSED + 36 and not done.intersection(numbers)
    writers = Writers(SOURCE, 2)
    try:
        found = list(writers.texts(iter(numbers)))
    finally:
        writers.close()
    assert found == [every.of(number) for number in numbers]


def test_compositions_fit_and_follow_from_the_seed(operators: list[Operator]) -> None:
    those = chainable(operators)
    found = [one for number in range(40) if (one := composed(those, number, 0, "cuda"))]
    assert len(found) > 20
    assert {len(one.operators) for one in found} >= {2, 3}
    assert all(2 <= len(one.operators) <= 5 for one in found)
    assert found[0] == composed(those, found[0].number, 0, "cuda")
    for one in found:
        assert on_meta(with_batch(one.text, 3))
        assert len(one.attribution) == len({line.partition(":")[0] for line in one.attribution})


@pytest.mark.programs
@pytest.mark.slow
def test_a_served_model_composes_and_its_answers_are_filtered(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    wanted = SynthesisSettings("cpu", "small", blocks=0, compile="aot_eager", answers=2)
    with answering("composer", "I cannot.", ANSWER) as (server, client):
        card = synthesise(SynthesisOptions(tmp_path, wanted, count=1, devices=("cpu",)), Composer(client))
    assert "Choose them from: torch." in server.bodies[0]["messages"][0]["content"]
    (row,) = read_rows(tmp_path)
    assert (row["source"], [plain(name) for name in row["operators"]]) == ("model", ["softplus", "cumsum"])
    assert row["attribution"][0] == "composed by the model composer"
    assert "| model | 1 | 1 | 100.0% |" in card and "| no fence with a file | 1 |" in card


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("I cannot", "no fence"),
        (ANSWER.replace("# operators", "# made of"), "names no operators"),
        (ANSWER.replace("BATCH = 16", "B = 16"), "BATCH"),
        (ANSWER.replace("class Model(", "class Net("), "class Model"),
        (ANSWER.replace("torch.Tensor.cumsum", "a, b, c, d, e"), "6 operators"),
        (ANSWER.replace("import torch\n", "import os\n"), "^imports what no task needs$"),
    ],
)
def test_an_answer_that_is_no_task(answer: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read_answer(answer, "composer", 0)


def test_a_small_model_is_asked_as_it_was_taught() -> None:
    *_, composition = next(compositions(3))
    with answering("small", composition.content) as (server, client):
        found = Composer(client, compact=True).ask(catalog(0, 0), 4, 0, lambda: False)
    (body,) = server.bodies
    assert body["temperature"] == 0.0
    assert [one["content"] for one in body["messages"]] == [one.content for one in asked(Random("composer 0 4"))]
    assert found.attribution[0] == "composed by the model small"
    assert len(found.attribution) == 1 + len(found.operators)
    assert all("BSD-3-Clause" in line for line in found.attribution[1:])


def test_an_operator_that_is_declared_twice_counts_once() -> None:
    twice = ANSWER.replace("torch.Tensor.cumsum", "torch.Tensor.cumsum, torch.Tensor.cumsum")
    assert read_answer(twice, "m", 0).operators == read_answer(ANSWER, "m", 0).operators


def test_asking_needs_a_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="without a model"):
        run_command("synth", ["--out", str(tmp_path), "--target", "cpu", "--answers", "3"])
    with pytest.raises(UsageError, match="--nothing"):
        run_command("synth", ["--nothing"])
