"""`models test`: five small questions to a model behind an endpoint."""

from __future__ import annotations

import pytest

from tests.common.commands import run_here
from tests.policy.endpoint import calling, fails, served, text

KERNEL = """// launch: small(x=x0, o=out0, n=B*1024)
#include "plan.h"
extern "C" void small(const small_args* a) {
  for (int64_t i = 0; i < a->n; i++) {
    const float value = a->x[i] * 0.5f + 1.0f;
    a->o[i] = value < 0.0f ? 0.0f : value;
  }
}
"""


@pytest.fixture
def endpoint():
    with served() as server:
        yield server


@pytest.mark.timed
@pytest.mark.slow
def test_a_model_that_writes_a_right_kernel_passes(home, endpoint):
    steps = [("write", {"path": "kernel.cpp", "text": KERNEL}), ("evaluate", {}), ("finish", {"summary": "done"})]
    endpoint.answers += [calling(("list", {"folder": "."})), *map(calling, steps)]
    done = run_here("models", "test", endpoint.url)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert [(verdict, question) for verdict, question, _ in lines] == [
        *(("ok", question) for question in ("reachable", "context", "speed")),
        *(("ok", question) for question in ("tool", "kernel")),
    ]
    assert "32000 tokens" in done.stdout and "right, in" in done.stdout


@pytest.mark.slow
def test_a_registered_model_is_asked_whatever_else_is_in_use(home, endpoint):
    """Both the questions and the job ask the model that is named; without a name, the endpoint in use."""
    other = {"KERNEL_ASSISTANT_ENDPOINT": "http://127.0.0.1:9/v1", "KERNEL_ASSISTANT_MODEL": "nowhere"}
    added = run_here("models", "add", "box", endpoint.url, "--remote-name", "small")
    assert added.returncode == 0 and "ok   reachable  small at" in added.stdout
    endpoint.answers += [calling(("list", {"folder": "."})), *[text("I would rather not.")] * 4]
    done = run_here("models", "test", "box", **other)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "nothing was called, 4 times in a row" in done.stdout and not endpoint.answers
    assert {body["model"] for body in endpoint.bodies} == {"small"}
    assert "127.0.0.1:9" in run_here("models", "test", **other).stderr


@pytest.mark.slow
def test_a_model_that_calls_nothing_is_told_what_to_do(home, endpoint):
    endpoint.answers += [text("I would rather not.")] * 8
    done = run_here("models", "test", endpoint.url)
    assert done.returncode == 1, done.stdout + done.stderr
    *_, called, kernel = done.stdout.splitlines()
    assert called.startswith("NOT  tool call  none in: Iwouldrathernot.") and "fenced blocks" in called
    assert kernel.startswith("NOT  kernel     none that is right, 0 candidates")
    assert "nothing was called, 4 times in a row" in kernel and "models list" in kernel


def test_what_cannot_be_reached_and_what_refuses(home, endpoint):
    added = run_here("models", "add", "later", "http://127.0.0.1:9/v1")
    assert added.returncode == 0 and "later does not answer now: " in added.stderr
    assert "later" in run_here("models", "list").stdout
    missing = run_here("models", "test", "http://127.0.0.1:9/v1")
    assert missing.returncode == 3 and "cannot be reached" in missing.stderr and not missing.stdout
    endpoint.models["small"]["max_model_len"] = 2000
    endpoint.answers += [fails(401, "bad key")] * 4
    done = run_here("models", "test", endpoint.url)
    assert done.returncode == 1
    _, context, reply, kernel = done.stdout.splitlines()
    assert context.startswith("NOT  context    2000 tokens (at least")
    assert reply.startswith("NOT  reply      refused: ") and "the key is wrong" in reply
    assert kernel.startswith("NOT  kernel ") and len(done.stdout.splitlines()) == 4
