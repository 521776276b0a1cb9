"""`optimize --endpoint URL` as a user runs it: command line, session host, worker, sandbox and HTTP, all real."""

from __future__ import annotations

import json
import threading

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.events import JobFinished
from kernel_assistant.records import JobOutcome, decode
from kernel_assistant.records.transcript import Transcript
from kernel_assistant.session.client import Client
from tests.agent.commands import commands
from tests.agent.models import EVALUATE, FINISH, write
from tests.policy.endpoint import Handler, calling, held, served

pytestmark = [pytest.mark.timed, pytest.mark.slow]

SOURCE = """// launch: net(x=x0, out=out0, n=B*128)
#include "plan.h"
extern "C" void net(const net_args* a) {
  for (int64_t i = 0; i < a->n; i++) a->out[i] = a->x[i] != a->x[i] ? a->x[i] : a->x[i] > 0 ? 2 * a->x[i] : 0;
}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory, python_path):
    with commands(tmp_path_factory.mktemp("home"), python_path) as command:
        yield command


def test_a_model_behind_an_endpoint_writes_the_kernel(run):
    with served() as endpoint:
        endpoint.answers += [calling(write(SOURCE), EVALUATE), calling(FINISH)]
        done = run("optimize", "net.py", "--policy", "model", "--endpoint", endpoint.url, "--no-free-wins", "--json")
    result = json.loads(done.stdout)
    assert result["outcome"] in ("improved", "no_measurable_gain", "inconclusive")
    assert (result["evaluations"], result["stop_reason"]) == (1, "finished")
    assert result["best"]["policy"] == "model"
    (line,) = run("show", result["artifacts"]["job"], "--transcript").stdout.splitlines()
    transcript = decode(line, Transcript)
    assert (transcript.ending, len(transcript.replies)) == ("finished", 2)
    assert "torch.relu(x) * 2" in transcript.messages[1].content


def detached(run, endpoint, *answers):
    """The number of a job that goes on with a model that gives these answers, and the job's events."""
    endpoint.answers += answers
    how = ("--policy", "model", "--endpoint", endpoint.url, "--budget", "10m", "--detach", "--json")
    job = json.loads(run("optimize", "net.py", *how).stdout)["job"]
    return job, Client(resolve()[0]).attach(job)


def test_the_user_says_something_and_then_cancels(run):
    """The model reads the user's message at its next turn. A cancel ends the stream, and the server notices it."""
    asked, heard, gone, go_on = (threading.Event() for _ in range(4))

    def wait(request: Handler) -> None:
        asked.set()
        go_on.wait(60)
        calling(("list", {"folder": "."}))(request)

    with served() as endpoint:
        job, events = detached(run, endpoint, wait, held(heard, gone))
        assert asked.wait(60)
        run("say", job, "no", "shared", "memory")
        go_on.set()
        assert heard.wait(60)
        run("cancel", job)
        assert gone.wait(60)
        *_, last = events
    assert endpoint.bodies[-1]["messages"][-1] == {"role": "user", "content": "no shared memory"}
    assert isinstance(last, JobFinished) and last.result.outcome is JobOutcome.cancelled
    assert "does not run" in run("say", job, "hello", code=2).stderr


def test_what_a_cancelled_job_found_is_measured_in_full_and_applied(run):
    """A cancelled job is confirmed: nothing is searched for, and the kernels go into the user's file."""
    judged, gone = threading.Event(), threading.Event()
    with served() as endpoint:
        job, events = detached(run, endpoint, calling(write(SOURCE), EVALUATE), held(judged, gone))
        assert judged.wait(120)
        run("cancel", job)
        assert gone.wait(60)
        *_, last = events
    assert isinstance(last, JobFinished) and last.result.outcome is JobOutcome.cancelled
    assert last.result.best is None and "plan.json" in last.result.artifacts
    assert "figures of the search, not confirmed" in run("show", job).stdout
    assert f"kernel-assistant confirm {job} measures it in full" in run("apply", job, code=2).stderr
    result = json.loads(run("confirm", "net.py", "--json").stdout)
    assert result["artifacts"]["job"] != job and result["outcome"] in ("improved", "no_measurable_gain", "inconclusive")
    assert result["best"]["policy"] == "model" and result["vs_eager"] != "unknown" != result["vs_compile"]
    applied = json.loads(run("apply", result["artifacts"]["job"], "--force", "--json").stdout)
    assert applied["class"] == "Net"
    run("undo", "net.py")
