"""Tests `--policy auto` with a model of the package: a GGUF file, llama.cpp, the compact profile, the judge."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernel_assistant.agent.prompts import compact_system
from kernel_assistant.config import resolve
from kernel_assistant.errors import MissingError
from kernel_assistant.events import Progress, Warned
from kernel_assistant.policy.connect import connect
from kernel_assistant.serving import endpoint, registry
from kernel_assistant.serving.convert_run import convert
from tests.judge.kernels import ROWS, WIDTH
from tests.serving import tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shipped(tmp_path_factory) -> Path:
    """A model of the right architecture with untrained weights; it reports that it is untrained."""
    folder = tmp_path_factory.mktemp("shipped")
    tiny.make(folder / "model", tiny.Size(context=4096), steps=0)
    convert("to-gguf", folder / "model", folder / "model.gguf")
    words = dict.fromkeys(("sha256", "made_for", "data", "recipe", "commit", "cannot"), "nothing")
    card = "".join(f'{name} = "{word}"\n' for name, word in words.items())
    (folder / "model.toml").write_text(f"{card}turns = 1\n[figures]\n")
    return folder / "model.gguf"


@pytest.fixture(autouse=True)
def engines():
    """Ends the engines."""
    yield
    endpoint.close()


@pytest.mark.timed
def test_auto_lets_the_shipped_model_play_first(job, shipped, monkeypatch):
    monkeypatch.setattr(registry, "SHIPPED", shipped)
    trajectory = job(seconds=12, policy="auto", episodes=2)
    told = [event.message for event in job.events if isinstance(event, (Progress, Warned))]
    transcript, other = job.store.transcripts.of("1")
    # Each is asked once.
    assert len(transcript.replies) == len(other.replies) == 1
    assert (transcript.model, transcript.profile) == ("shipped", "compact")
    system, task, reply = transcript.messages[:3]
    assert system.content == compact_system("cpu")
    assert f"\nB={ROWS} D0={WIDTH} C0=1e-06 " in task.content
    # The later reply, of either conversation, begins with tokens of the other, which do not count again.
    both = [one.messages[2] for one in (transcript, other)]
    assert reply.token_ids and min(len(one.token_ids) - one.usage.completion_tokens for one in both) == 0
    # It had a turn and made no kernel of it: what the generator finds is the result.
    assert (trajectory.policy, trajectory.final.correct) == ("generator", True)
    assert not any("writes kernels alone" in line for line in told)


def test_an_engine_that_is_not_there_is_said(shipped, monkeypatch, tmp_path):
    """With `auto` the generator runs alone and the reason is reported (test_players.py); with `model` the job ends."""
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "SHIPPED", shipped)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingError, match=r"llama\.cpp is not installed"):
        connect(resolve()[0], "", "")
