"""`optimize --endpoint URL` as a user runs it: command line, session host, worker, sandbox and HTTP, all real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.events import JobFinished
from kernel_assistant.records import JobOutcome, decode
from kernel_assistant.records.transcript import Transcript
from kernel_assistant.session.client import Client
from tests.agent.models import EVALUATE, FINISH, write
from tests.common.caches import new_cache
from tests.common.modules import POINTWISE
from tests.policy.endpoint import Handler, calling, chunk, served

pytestmark = pytest.mark.slow

SOURCE = """// launch: net(x=x0, out=out0, n=B*128)
#include "plan.h"
extern "C" void net(const net_args* a) {
  for (int64_t i = 0; i < a->n; i++) a->out[i] = a->x[i] != a->x[i] ? a->x[i] : a->x[i] > 0 ? 2 * a->x[i] : 0;
}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory, python_path):
    """Arguments → the finished process. One session host for all tests of this file."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "net.py").write_text(POINTWISE)
    new_cache(folder / "cache")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("KERNEL_ASSISTANT_")]:
            patch.delenv(name)
        patch.setenv("KERNEL_ASSISTANT_HOME", str(folder))
        patch.setenv("KERNEL_ASSISTANT_TARGET", "cpu")
        patch.setenv("PYTHONPATH", python_path)
        patch.chdir(folder)

        def command(*arguments, code=0):
            argv = [sys.executable, "-m", "kernel_assistant", *arguments]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert done.returncode == code, done.stderr
            return done

        yield command
        Client(resolve()[0]).shutdown()


def test_a_model_behind_an_endpoint_writes_the_kernel(run):
    with served() as endpoint:
        endpoint.answers += [calling(write(SOURCE), EVALUATE), calling(FINISH)]
        done = run("optimize", "net.py", "--policy", "model", "--endpoint", endpoint.url, "--no-free-wins", "--json")
    result = json.loads(done.stdout)
    assert result["outcome"] in ("improved", "no_measurable_gain")
    assert (result["evaluations"], result["stop_reason"]) == (1, "finished")
    assert result["best"]["policy"] == "model"
    (line,) = run("show", result["artifacts"]["job"], "--transcript").stdout.splitlines()
    transcript = decode(line, Transcript)
    assert (transcript.ending, len(transcript.replies)) == ("finished", 2)
    assert "torch.relu(x) * 2" in transcript.messages[1].content


def test_the_user_says_something_and_then_cancels(run):
    """The model hears it at its next turn; a cancel ends the stream, and the server sees it."""
    asked, heard, gone, go_on = (threading.Event() for _ in range(4))

    def wait(request: Handler) -> None:
        asked.set()
        go_on.wait(60)
        calling(("list", {"folder": "."}))(request)

    def stream(request: Handler) -> None:
        if request.body["messages"][-1] == {"role": "user", "content": "no shared memory"}:
            heard.set()
        request.begin()
        request.event(chunk({"content": "a"}))
        request.connection.settimeout(60)
        if request.connection.recv(1) == b"":
            gone.set()

    with served() as endpoint:
        endpoint.answers += [wait, stream]
        how = ("--policy", "model", "--endpoint", endpoint.url, "--budget", "10m", "--detach", "--json")
        job = json.loads(run("optimize", "net.py", *how).stdout)["job"]
        stream_of_events = Client(resolve()[0]).attach(job)
        assert asked.wait(60)
        run("say", job, "no", "shared", "memory")
        go_on.set()
        assert heard.wait(60)
        run("cancel", job)
        assert gone.wait(60)
        *_, last = stream_of_events
    assert isinstance(last, JobFinished)
    assert last.result.outcome is JobOutcome.cancelled
    assert "does not run" in run("say", job, "hello", code=2).stderr


def test_a_model_that_is_not_there_is_said_so(run):
    done = run("optimize", "net.py", "--policy", "model", "--model", "nowhere.gguf", code=3)
    assert "no model 'nowhere.gguf'" in done.stderr
    done = run("optimize", "net.py", "--policy", "model", "--endpoint", "http://127.0.0.1:9/v1", code=3)
    assert "cannot be reached" in done.stderr
