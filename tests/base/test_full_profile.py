"""Episodes with the tools of the full profile in the real environment: the conversation only grows."""

from __future__ import annotations

import json
import sys
from itertools import islice, pairwise

import pytest

from bench.base_model import Script
from kernel_assistant.serving.template import write_call
from kernel_assistant_training.decode import Reply
from kernel_assistant_training.episodes.subject import subjects
from kernel_assistant_training.evaluation.tasks import of_graph
from kernel_assistant_training.ppo.chat.chat_format_template import TemplateChatFormat
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.pool.pool import EvaluationPool, PoolOptions
from kernel_assistant_training.ppo.rollouts import Rollouts
from kernel_assistant_training.ppo.updates.selection import against, learned
from tests.base.models import TEMPLATE, vocabulary
from tests.ppo.conftest import cache  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow
NOTHING = "I would rather not."


class Written:
    """An engine that replies with a list of texts, one after another."""

    def __init__(self, speech, script):
        self.speech, self.script, self.prompts = speech, script, []

    def decode(self, asked):
        (one,) = asked
        text = self.script[min(len(self.prompts), len(self.script) - 1)]
        self.prompts.append(list(one.prompt))
        ids = [*self.speech.tokens(text, plain=True), self.speech.ends[0]][: one.most]
        return [Reply(ids, [-1.0] * len(ids), ids[-1] == self.speech.ends[0], [])]


@pytest.fixture(scope="module")
def played(tmp_path_factory, cache):  # noqa: F811
    """Two episodes: a right kernel after a wrong one, and reading files until the context is full."""
    folder = tmp_path_factory.mktemp("full")
    vocabulary(folder, TEMPLATE)
    speech = TemplateChatFormat.load(folder)
    subject = next(one for one in islice(subjects(1, "cpu"), 200) if one.answers[0].schedule.form == "pointwise")
    right, wrong = Script.sources(subject)
    write = [write_call("write", json.dumps({"path": "kernel.cpp", "text": text})) for text in (wrong, right)]
    evaluate = write_call("evaluate", "{}")
    both = f"{evaluate}\n{evaluate}"
    working = [write_call("list", "{}"), write[0], evaluate, NOTHING, write[1], both, write_call("finish", "{}")]
    reading = [write_call("read", json.dumps({"path": "reference/include/ka/pointwise.h"}))]
    options = PoolOptions(target="cpu", out=folder, cache=cache, python=sys.executable)
    found = []
    with EvaluationPool(options) as pool:
        for script, context in ((working, 60_000), (reading, 40_000)):
            engine = Written(speech, script)
            play = PlayOptions(scheme="correctness", turns=40, reply=2000, context=context, profile="full")
            rollouts = Rollouts(pool, engine, speech, 0)
            (one,) = rollouts.play([of_graph(subject.graph, "cpu")], 1, 1, play).trajectories
            found.append((one, engine, speech))
    return found


def test_tools_are_called_and_a_right_kernel_is_rewarded(played):
    one, _, speech = played[0]
    assert one.calls == ("tool", "tool", "evaluate", "idle", "tool", "evaluate", "finish")
    assert one.outcomes == ("compile_error", "correct") and one.reward.value == 1 and one.stop == "finished"
    text = speech.text(one.said().ids)
    assert "kernel.cpp, " in text and "undeclared" in text and "Nothing was called" in text
    assert "You make one PyTorch module faster" in text
    # What is behind an evaluation in a reply was written without its result.
    assert len(one.candidates) == 2


def test_every_prompt_begins_with_all_that_was_before(played):
    for one, engine, _ in played:
        for before, after in pairwise(engine.prompts):
            assert after[: len(before)] == before
        ids = list(one.said().ids)
        for prompt, (begin, _) in zip(engine.prompts, one.spans, strict=True):
            assert ids[:begin] == prompt


def test_a_full_context_ends_an_episode_and_shortens_nothing(played):
    one, _, _ = played[1]
    assert one.stop == "tokens" and one.calls == ("tool",) * one.turns and one.turns > 2
    assert 30_000 < one.length <= 40_000 and one.reward.value < 0


def test_what_led_to_the_right_kernel_is_learned_and_the_rest_is_not(played):
    one, _, _ = played[0]
    assert against(one) == "loop", "a reply that asks for nothing"
    marks = learned(one).learned
    assert [marks[begin] for begin, _ in one.spans] == [False, False, False, False, True, True, True]
