"""A real vLLM under our supervisor; `KERNEL_ASSISTANT_VLLM_PYTHON` names an interpreter that has it."""

from __future__ import annotations

import json
import os
import signal

import pytest

from kernel_assistant.config import Settings, resolve
from kernel_assistant.serving.errors import EngineShortOfMemoryError, ModelNotFoundError
from kernel_assistant.serving.request import ServeRequest
from kernel_assistant.serving.server import serve_detached
from kernel_assistant.serving.state import running, stop_running
from kernel_assistant.serving.supervisor import ServerStatus
from tests.serving.servers import below, chat, eventually, is_alive

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def settings() -> Settings:
    return resolve()[0]


@pytest.fixture(scope="module")
def server(tiny, settings):
    """Serves the GGUF file, through the folder that is derived from it."""
    request = ServeRequest(model=str(tiny.gguf), engine="vllm", context=512, gpu_memory_share=0.05)
    yield serve_detached(request, settings, lambda _: None)
    stop_running(settings)


def test_tool_calls_are_parsed(server, tiny):
    messages = [message.openai() for message in tiny.module.QUESTION]
    choice = chat(server, messages=messages, tools=tiny.module.TOOLS, logprobs=True, return_token_ids=True)
    said = choice["message"]
    call = said["tool_calls"][0]["function"]
    assert (call["name"], json.loads(call["arguments"])) == ("evaluate", {"tier": "quick"})
    assert said["content"].strip() == tiny.module.ANSWER.partition("<tool_call>")[0].strip()
    _, answer = tiny.module.conversation_ids(tiny.module.tokenizer(), tiny.module.TOOLS)
    assert choice["token_ids"] == answer
    messages += [said, {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "ok .214"}]
    assert chat(server, messages=messages, tools=tiny.module.TOOLS, max_tokens=4)["message"]["role"] == "assistant"


def test_a_killed_engine_is_started_again_and_ends_for_good(server, settings):
    """This test comes last, because it ends the server."""
    everything = below(server.pid)
    os.kill(everything[1], signal.SIGKILL)
    assert eventually(lambda: running(settings).status is ServerStatus.restarting)
    assert eventually(lambda: not any(map(is_alive, everything)))
    assert stop_running(settings)
    assert eventually(lambda: not is_alive(server.pid))


def test_a_model_that_is_not_there_is_said_in_one_line(settings, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Exception, match="nobody/nothing") as caught:
        serve_detached(ServeRequest(model="nobody/nothing", engine="vllm"), settings, lambda _: None)
    assert caught.value.exit_code == ModelNotFoundError.exit_code
    assert running(settings) is None


def test_memory_that_is_short_is_said_in_one_line(tiny, settings, monkeypatch):
    """Requires more cache than any machine has; the start is not repeated."""
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "100000")
    request = ServeRequest(model=str(tiny.gguf), engine="vllm", context=512, gpu_memory_share=0.05)
    with pytest.raises(Exception, match=r"the server wants 100000\.0 GiB") as caught:
        serve_detached(request, settings, lambda _: None)
    assert caught.value.exit_code == EngineShortOfMemoryError.exit_code
    assert running(settings) is None
