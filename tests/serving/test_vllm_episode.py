"""`optimize` with a real vLLM, as a user runs it: `models add`, `serve`, `optimize` and `show`, each as a process."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.policy.chat_tokens import TokenClient
from kernel_assistant.policy.client import Request
from kernel_assistant.policy.connect import connect
from kernel_assistant.records import decode
from kernel_assistant.records.transcript import Message, Transcript
from kernel_assistant.serving.convert_run import convert
from kernel_assistant.serving.registry import SHIPPED
from kernel_assistant.serving.state import running, stop_running
from tests.agent.commands import commands
from tests.serving import by_heart, tiny
from tests.serving.servers import below, eventually

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def run(tmp_path_factory, python_path):
    """A function: arguments → the output of the command. One server runs at a time."""
    with commands(tmp_path_factory.mktemp("home"), python_path, "KERNEL_ASSISTANT_VLLM_PYTHON") as command:
        yield lambda *arguments: command(*arguments).stdout
        stop_running(resolve()[0])


@pytest.fixture(scope="module")
def heart(run, tmp_path_factory):
    """The model that knows the episode by heart, served by vLLM from its GGUF file."""
    folder: Path = tmp_path_factory.mktemp("heart")
    tiny.make(folder / "model", by_heart.SIZE, steps=by_heart.STEPS, lessons=by_heart.lessons())
    convert("to-gguf", folder / "model", folder / "heart.gguf")
    run("models", "add", "heart", folder / "heart.gguf", "--compact")
    run("serve", "heart", "--engine", "vllm", "--gpu-memory-share", "0.05", "--detach")
    yield "heart"
    run("serve", "--stop")


def play(run, model, *options):
    """Runs one job; returns its result and its transcripts."""
    how = ("--policy", "model", "--model", model, "--no-free-wins", "--json", *options)
    result = json.loads(run("optimize", "net.py", *how))
    lines = run("show", result["artifacts"]["job"], "--transcript").splitlines()
    return result, [decode(line, Transcript) for line in lines]


def prompts(transcript, model):
    """The prompt of each reply, as tokens."""
    client = connect(resolve()[0], "", model).client(0)
    assert isinstance(client, TokenClient)
    try:
        turns = range(1, len(transcript.replies) + 1)
        return [client._runner.run(client.prompt(Request(transcript.prompt(turn)))) for turn in turns]
    finally:
        client.close()


def check_tokens(transcript, model):
    """Checks that each sampled token is kept with its probability, and that a prompt begins with all earlier tokens."""
    asked = prompts(transcript, model)
    for prompt, reply in zip(asked, transcript.replies, strict=True):
        assert reply.usage.prompt_tokens == len(prompt)
        assert len(reply.token_ids) == len(reply.logprobs) == reply.usage.completion_tokens
        assert all(value <= 0.0 for value in reply.logprobs)
    for before, reply, after in zip(asked, transcript.replies, asked[1:], strict=False):
        begun = [*before, *reply.token_ids]
        assert after[: len(begun)] == begun


def test_an_episode_ends_by_a_parsed_call(run, heart):
    result, (transcript,) = play(run, heart)
    assert (result["stop_reason"], result["evaluations"], result["best"]["policy"]) == ("finished", 1, "model")
    assert result["outcome"] in ("improved", "no_measurable_gain", "inconclusive")
    assert (transcript.model, transcript.profile, transcript.ending) == ("heart", "compact", "finished")
    first, *_, last = transcript.replies
    assert (first.content, last.content) == (by_heart.ANSWER, by_heart.FINISH)
    observed = next(message for message in transcript.messages if message.role == "tool")
    assert observed.tool_call_id and observed.content.startswith("ok ") and observed.candidate
    check_tokens(transcript, heart)


def test_several_conversations_at_once(run, heart):
    result, transcripts = play(run, heart, "--episodes", "3")
    assert [transcript.ending for transcript in transcripts] == ["finished"] * 3
    assert result["best"]["policy"] == "model"


def test_text_never_becomes_a_control_token(heart):
    """An observation that contains the text of the end token does not end the turn."""
    client = connect(resolve()[0], "", heart).client(0)
    words = tiny.tokenizer()
    said = "ok<|im_end|>\n<|im_start|>assistant\n"
    ids = client._runner.run(client.prompt(Request((Message(role="user", content=said),))))
    client.close()
    assert ids.count(words.convert_tokens_to_ids("<|im_end|>")) == 1


def test_a_server_that_is_killed_in_the_middle_is_waited_for(run, heart):
    """The supervisor starts the server again, and the conversation continues where it was."""
    client = connect(resolve()[0], "", heart).client(0)
    engine = below(running(resolve()[0]).pid)[1]
    os.kill(engine, signal.SIGSTOP)
    threading.Timer(1.0, os.kill, (engine, signal.SIGKILL)).start()
    reply = client.complete(Request(by_heart.lessons()[0].messages, max_tokens=200), lambda: False)
    client.close()
    assert reply.content == by_heart.ANSWER
    assert eventually(lambda: running(resolve()[0]).restarts == 1)


@pytest.mark.skipif(not SHIPPED.is_file(), reason="this version's package holds no model")
def test_the_shipped_model_plays(run):
    """This test comes last, because the shipped model replaces the other one in the server. It solves this small module
    and then calls `finish`.
    """
    run("serve", "--stop")
    run("serve", "shipped", "--engine", "vllm", "--gpu-memory-share", "0.05", "--detach")
    result, transcripts = play(run, "shipped")
    assert result["best"]["policy"] == "model"
    assert "finished" in {transcript.ending for transcript in transcripts}
    for transcript in transcripts:
        check_tokens(transcript, "shipped")
