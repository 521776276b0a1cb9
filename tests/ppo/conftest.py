"""A task, and a small model that writes a right or a wrong kernel for it with equal probability."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from random import Random

import pytest
import torch

from kernel_assistant.records.transcript import Message
from kernel_assistant_training.architecture import SMALL, Llama
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.episodes.subject import subjects
from kernel_assistant_training.evaluation.tasks import Task, of_graph
from kernel_assistant_training.folder import save_folder
from kernel_assistant_training.lessons.lesson import FINISH
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.stage import StageOptions
from kernel_assistant_training.ppo.updates.kl import KlControl
from kernel_assistant_training.ppo.updates.update import UpdateOptions
from kernel_assistant_training.synth import prompt
from kernel_assistant_training.tokenizer import load, vocabulary_size
from tests.common.caches import known_cpu
from tests.common.threads import one_thread

#: Steps until the answers are known by heart.
STEPS = 100


@dataclass(frozen=True)
class Coin:
    """`folder` is the model's; `right` and `wrong` are its two replies; `cache` has the device's bandwidths."""

    folder: object
    task: Task
    right: str
    wrong: str
    cache: object


@pytest.fixture(autouse=True)
def on_one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """The bandwidths are given, because they cannot be measured on a busy machine."""
    where = tmp_path_factory.mktemp("cache")
    known_cpu(where)
    return where


@pytest.fixture(scope="session")
def coin(tmp_path_factory, cache):
    subject = min(islice(subjects(1, "cpu"), 12), key=lambda one: len(one.answers[0].source))
    task = of_graph(subject.graph, "cpu")
    source = subject.answers[0].source
    right, wrong = (
        f"```cpp\n{text.rstrip()}\n```\n" for text in (source, source.replace("{\n", "{\n  undeclared;\n", 1))
    )
    assert right != wrong
    return Coin(trained(task, right, wrong, tmp_path_factory.mktemp("coin")), task, right, wrong, cache)


@pytest.fixture
def options(coin, tmp_path):
    """A stage that plays the coin for one iteration of one turn each."""
    folders = {"base": coin.folder, "out": tmp_path / "run", "cache": coin.cache}
    played = {"target": "cpu", "iterations": 1, "episodes": 12, "rows": 12}
    play = PlayOptions(scheme="correctness", turns=1, reply=130, context=512)
    update = UpdateOptions(rate=2e-4, head_rate=2e-4, steps=1, warmup=1, lam=1.0)
    return StageOptions(stage="ppo_single", **folders, **played, play=play, update=update, kl=KlControl(0.01))


def said(content):
    return Message(role="assistant", content=content)


def heard(content):
    return Message(role="tool", content=content, tool_call_id="evaluate")


def conversations(task, right, wrong, random):
    """One conversation of each kind: in the first a fault is repaired, in the second a right kernel is followed by
    `finish`.
    """
    begin = prompt(task.canonical, "cpu", random)
    ok = heard(f"ok {random.uniform(0.1, 2):.3f} floor .{random.randint(10, 99)}")
    fault = [said(wrong), heard("compile L4 ‘undeclared’ was not declared in this scope")]
    return [[*begin, *before, said(right), ok, said(FINISH)] for before in ([], fault)]


@one_thread()
def trained(task, right, wrong, folder):
    torch.manual_seed(0)
    tokenizer = load()
    shape = replace(SMALL, vocabulary=vocabulary_size(tokenizer), width=96, inner=192, layers=2, heads=2, head_width=48)
    save_folder(Llama(shape), folder)
    actor, random, encoder = Actor.load(folder, torch.device("cpu")), Random(0), Encoder(tokenizer)
    optimiser = torch.optim.AdamW(actor.model.parameters(), lr=4e-3, betas=(0.9, 0.95))
    for step in range(STEPS):
        for group in optimiser.param_groups:
            group["lr"] = 4e-3 * min(1.0, 3 * (1 - step / STEPS))
        rows = [encoder.encode(one) for one in conversations(task, right, wrong, random)]
        ids = torch.zeros(2, max(len(one.ids) for one in rows), dtype=torch.long)
        learned = torch.zeros(ids.shape, dtype=torch.bool)
        for row, one in enumerate(rows):
            ids[row, : len(one.ids)], learned[row, : len(one.ids)] = torch.tensor(one.ids), torch.tensor(one.learned)
        loss = -actor(ids, learned).logprobs.sum() / learned.sum()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(actor.model.parameters(), 1.0)
        optimiser.step()
    save_folder(as_llama(actor, shape), folder)
    return folder


def as_llama(actor, shape):
    model, known = Llama(shape), actor.model.state_dict()
    model.load_state_dict({name: known[name] for name in model.state_dict()})
    return model
