"""`kernel-assistant serve` and `models` as processes, and how other code finds the served model."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel_assistant.cli import main
from kernel_assistant.config import resolve
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.serving import registry
from kernel_assistant.serving.endpoint import close, endpoint_for, local_engine
from kernel_assistant.serving.errors import ModelNotFoundError, NoModelError
from kernel_assistant.serving.llama.embedded import EmbeddedModel
from kernel_assistant.serving.local import LocalEngine
from kernel_assistant.serving.plan import plan
from kernel_assistant.serving.registry import find
from kernel_assistant.serving.request import ServeRequest
from kernel_assistant.serving.state import running, stop_running
from tests.common.commands import run_here
from tests.serving.servers import below, chat, environment, eventually, is_alive


@pytest.fixture
def run(settings):
    """A function: arguments → the finished process. Servers that still run afterwards are stopped."""

    def run_command(*arguments, **variables):
        command, env = [sys.executable, "-m", "kernel_assistant"], {**environment(), **variables}
        return subprocess.run([*command, *map(str, arguments)], env=env, capture_output=True, text=True, check=False)

    yield run_command
    close()
    stop_running(settings)


def said(endpoint, tiny):
    """The server's answer to the question that the model knows."""
    asked = [message.openai() for message in tiny.module.QUESTION]
    return chat(endpoint, messages=asked, tools=tiny.module.TOOLS)["message"]


def test_detached_server_is_found_used_and_stopped(run, tiny, settings, home):
    started = run("serve", tiny.gguf, "--detach", "--json")
    assert started.returncode == 0, started.stderr
    assert "ready" in started.stderr
    state = json.loads(started.stdout)
    file = home / "state" / "serving" / "server.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    assert run("models", "use", tiny.gguf).returncode == 0
    endpoint = endpoint_for(resolve()[0])
    assert (endpoint.url, endpoint.key, endpoint.engine) == (state["url"], state["key"], "llama.cpp")
    call = said(endpoint, tiny)["tool_calls"][0]["function"]
    assert (call["name"], json.loads(call["arguments"])) == ("evaluate", {"tier": "quick"})

    second = run("serve", tiny.gguf)
    assert second.returncode == 2 and "a server runs already" in second.stderr
    assert f"pid {state['pid']}" in run("serve", "--status").stdout
    assert json.loads(run("serve", "--status", "--json").stdout)["status"] == "ready"

    everything = [state["pid"], *below(state["pid"])]
    assert len(everything) == 3
    assert run("serve", "--stop").stdout == "stopped\n"
    assert not any(map(is_alive, everything))
    assert "no server runs" in run("serve", "--status").stdout
    assert run("serve", "--stop").stdout == "no server runs\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_foreground_server_ends_with_its_command(tiny, settings, number):
    words = [sys.executable, "-m", "kernel_assistant", "serve", str(tiny.gguf)]
    with subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, text=True) as command:
        assert any("ready" in line for line in iter(command.stderr.readline, ""))
        everything = below(command.pid)
        assert len(everything) == 2
        command.send_signal(number)
        assert command.wait() == (-number if number is signal.SIGKILL else 0)
    assert eventually(lambda: not any(map(is_alive, everything)))
    assert running(settings) is None


def test_a_server_that_was_killed_does_not_stand_in_the_way(run, tiny, settings):
    assert run("serve", tiny.gguf, "--detach").returncode == 0
    os.kill(running(settings).pid, signal.SIGKILL)
    assert eventually(lambda: running(settings) is None)
    assert run("serve", tiny.gguf, "--detach").returncode == 0


def test_an_unreadable_model_fails_detached_and_not(run, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"nothing like it")
    for detach in ([], ["--detach"]):
        done = run("serve", broken, *detach)
        assert done.returncode == 3, done.stderr
        assert f"error: {broken} is not a GGUF file that llama.cpp can read" in done.stderr
        assert "next: " in done.stderr


def test_without_any_model_everything_says_so(settings, monkeypatch, capsys):
    """The shipped model is missing; only this process can be made to believe that."""
    monkeypatch.setattr(registry, "SHIPPED", settings.state_dir / "nothing.gguf")
    for words in (["serve"], ["models", "info"]):
        assert main(words) == 3
        printed = capsys.readouterr().err
        assert "error: no model installed: none is named" in printed and "next: name one of yours" in printed
    assert main(["models", "list"]) == 0
    assert "no model installed" in capsys.readouterr().out
    with pytest.raises(NoModelError):
        endpoint_for(settings)


@pytest.mark.parametrize(
    ("words", "code", "cause"),
    [
        (["nowhere.gguf"], 3, "no model 'nowhere.gguf'"),
        (["--engine", "llama.cpp", "some/model"], 2, "llama.cpp reads GGUF files"),
        (["some/model"], 3, "vllm is not installed"),
        (["http://localhost:1/v1"], 2, "is served elsewhere"),
        (["--status", "--stop"], 2, "exclude each other"),
    ],
)
def test_refusals(settings, words, code, cause):
    done = run_here("serve", *words)
    assert done.returncode == code, done.stderr
    assert cause in done.stderr and "next: " in done.stderr


def test_an_interpreter_without_vllm_is_named(settings):
    done = run_here("serve", "some/model", KERNEL_ASSISTANT_VLLM_PYTHON=sys.executable)
    assert done.returncode == 3 and f"{sys.executable} has no vllm" in done.stderr


@pytest.mark.slow
def test_registry(settings, tiny, monkeypatch):
    assert run_here("models", "add", "mine", tiny.gguf, "--compact").returncode == 0
    theirs = ("theirs", "https://host/v1/", "--remote-name", "big", "--key-variable", "K")
    assert run_here("models", "add", *theirs).returncode == 0
    assert run_here("models", "add", "folder", tiny.folder).returncode == 0
    assert run_here("models", "add", "hub", "Owner/Name").returncode == 0
    assert "already" in run_here("models", "add", "mine", tiny.gguf).stderr
    assert run_here("models", "add", "bad name", tiny.gguf).returncode == 2
    assert "only an endpoint" in run_here("models", "add", "x", tiny.gguf, "--key-variable", "K").stderr
    listed = json.loads(run_here("models", "list", "--json").stdout)["models"]
    kinds = {"mine": "gguf", "theirs": "endpoint", "folder": "folder", "hub": "hub"}
    assert {entry["name"]: entry["kind"] for entry in listed if entry["name"] != "shipped"} == kinds
    assert run_here("models", "use", "theirs").returncode == 0
    lines = run_here("models", "list").stdout.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("*")] == [["*", "theirs"]]
    with pytest.raises(UsageError, match="K is not set"):
        endpoint_for(resolve()[0])
    monkeypatch.setenv("K", "secret")
    endpoint = endpoint_for(resolve()[0])
    assert (endpoint.url, endpoint.key, endpoint.model) == ("https://host/v1", "secret", "big")
    assert json.loads(run_here("models", "info", "mine", "--json").stdout)["gguf"]["layers"] == 2
    assert "LlamaForCausalLM" in run_here("models", "info", "folder").stdout
    with pytest.raises(MissingError, match="is not being served"):
        endpoint_for(resolve()[0], "folder")
    assert run_here("models", "remove", "theirs").returncode == 0
    with pytest.raises(ModelNotFoundError, match="no model 'theirs'"):
        endpoint_for(resolve()[0])
    assert "did you mean mine" in run_here("models", "remove", "mime").stderr


def test_a_project_cannot_choose_the_model(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.kernel-assistant]\nmodel = "http://evil/v1"\n')
    done = run_here("config", "get", "model")
    assert done.stdout == "\n"


def test_an_embedded_engine_starts_when_it_is_asked_for(run, tiny, settings):
    endpoint = endpoint_for(settings, str(tiny.gguf))
    assert said(endpoint, tiny)["content"].strip() == tiny.module.ANSWER.partition("<tool_call>")[0].strip()
    assert endpoint_for(settings, str(tiny.gguf)) == endpoint
    engine = local_engine(find(str(tiny.gguf), settings), settings)
    assert EmbeddedModel(engine).complete(tiny.module.QUESTION).role == "assistant"
    pid = engine._process.pid
    close()
    assert not is_alive(pid)


@pytest.mark.programs
@pytest.mark.slow
def test_installing_without_an_index_fails_in_one_line(settings):
    done = run_here("serve", "--install", PIP_NO_INDEX="1")
    assert done.returncode == 3, done.stderr
    assert "error: pip could not install vllm" in done.stderr
    assert "vllm is not installed" in run_here("serve", "some/model").stderr


def test_logs_of_killed_processes_go(tiny, settings):
    with subprocess.Popen(["true"]) as ended:
        pass
    spec = plan(ServeRequest(model=str(tiny.gguf), engine="llama.cpp"), settings)
    left, mine = (spec.log.with_name(f"embedded-{pid}-x.log") for pid in (ended.pid, os.getpid()))
    left.touch()
    mine.touch()
    LocalEngine(spec).stop()
    assert not left.exists() and mine.exists()


def test_threads_that_ask_at_once_get_one_engine(run, tiny, settings):
    entry = find(str(tiny.gguf), settings)
    with ThreadPoolExecutor(8) as threads:
        engines = list(threads.map(lambda _: local_engine(entry, settings), range(8)))
    assert len(set(map(id, engines))) == 1
