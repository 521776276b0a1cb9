"""The questions of `kernel-assistant models test`: whether a model can be reached, whether its replies can be read,
and whether it writes a correct kernel."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.agent.calls import source_of, with_calls
from kernel_assistant.agent.tools import ALL
from kernel_assistant.config import Settings
from kernel_assistant.errors import Cancelled
from kernel_assistant.policy.client import ModelClient, PolicyError, Request
from kernel_assistant.policy.connect import ModelConnection, connect
from kernel_assistant.records.transcript import Message

#: Seconds that a reply may take, and the budget of the job with the small module.
REPLY_SECONDS, JOB_SECONDS = 60.0, 45
#: Tokens that the first prompt of a small module has, SKILL.md left out, with room for the reply.
LEAST_CONTEXT = 4_000
ASKED = "Call the tool list with the folder '.', and say nothing else."
MODULE = """import torch
from torch import nn


class Small(nn.Module):
    def forward(self, x):
        return torch.relu(x * 0.5 + 1)


def get_inputs():
    return [torch.randn(256, 1024)]
"""


@dataclass(frozen=True)
class Answer:
    """The answer to one question about a model: what was found, whether that is sufficient (`passed`), and a next
    step if it is not."""

    question: str
    found: str
    passed: bool
    next_step: str = ""

    def line(self) -> str:
        """The answer as a line of text, with the next step only if the answer does not pass."""
        step = f" ({self.next_step})" if self.next_step and not self.passed else ""
        return f"{'ok ' if self.passed else 'NOT'}  {self.question:10} {self.found}{step}"


def answers(settings: Settings, model: str) -> Iterator[Answer]:
    """Yields one answer after another. `model` is a registered name, a file, a folder or a URL. Raises MissingError or
    UsageError if the model cannot be reached."""
    connection = connect(settings, model, "")
    with closing(connection.client(0)) as client:
        yield from _reached(connection, client)
        if not connection.compact:
            yield from _asked(client)
    yield _job(model, connection)


def first_answers(settings: Settings, model: str) -> Iterator[Answer]:
    """Yields those of the `answers` that need no reply of the model. Raises the same errors."""
    connection = connect(settings, model, "")
    with closing(connection.client(0)) as client:
        yield from _reached(connection, client)


def _reached(connection: ModelConnection, client: ModelClient) -> Iterator[Answer]:
    where = connection.endpoint.url if connection.endpoint else "a process of ours"
    yield Answer("reachable", f"{connection.name} at {where}", True)
    enough = connection.compact or client.context_tokens >= LEAST_CONTEXT
    more = f"at least {LEAST_CONTEXT} are needed: serve --context N, or the option of its server"
    yield Answer("context", f"{client.context_tokens} tokens", enough, "" if enough else more)


def _asked(client: ModelClient) -> Iterator[Answer]:
    """Yields answers about a small request: the model's speed, and whether it calls a tool and in which form."""
    request = Request((Message(role="user", content=ASKED),), (ALL["list"].schema,), max_tokens=512)
    until = time.monotonic() + REPLY_SECONDS
    try:
        reply = client.complete(request, lambda: time.monotonic() > until)
    except Cancelled:
        yield Answer("reply", f"none in {REPLY_SECONDS:.0f} s", False, "a smaller model, or a faster machine")
        return
    except PolicyError as error:
        yield Answer("reply", f"{error.kind}: {error.cause}", False, error.next_step)
        return
    tokens, seconds = reply.usage.completion_tokens, reply.usage.seconds
    if tokens and seconds:
        yield Answer("speed", f"{tokens / seconds:.0f} tokens a second, {seconds:.1f} s for {tokens}", True)
    read, calls = with_calls(reply, ALL)
    called = [call.name for call in calls if not call.problem]
    form = "as OpenAI has it" if reply.tool_calls else "in its text"
    if called == ["list"]:
        yield Answer("tool call", f"read, {form}" + (", behind its reasoning" if read.reasoning else ""), True)
        return
    said = " ".join((read.content or read.reasoning).split())[:120] or "nothing"
    step = "kernels are taken from fenced blocks, too; a larger model calls tools"
    yield Answer("tool call", f"none in: {said}", source_of(read.content) is not None, step)


def _job(model: str, connection: ModelConnection) -> Answer:
    """Optimizes a small module with the model; the answer says whether one of its kernels is correct."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.py"
        path.write_text(MODULE, encoding="utf-8")
        argv = [sys.executable, "-m", "kernel_assistant", "optimize", str(path), "--policy", "model", "--json"]
        # An endpoint goes before any model, so that no setting chooses another one.
        argv += ["--endpoint", model, "--model", "", "--budget", f"{JOB_SECONDS}s", "--no-free-wins"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        cause, _, next_step = done.stderr.strip().partition("\n")
        return Answer("kernel", cause or f"exit code {done.returncode}", False, next_step)
    obstacles = document.get("obstacles") or [{}]
    if document.get("best") or obstacles[0].get("check") == "confirmation":
        return Answer("kernel", f"right, in {document['seconds']:.0f} s", True)
    tried = f"{document.get('evaluations', 0)} candidates in {document.get('seconds', 0.0):.0f} s"
    why = obstacles[0].get("message") or document.get("why") or "none was right"
    return Answer("kernel", f"none that is right, {tried}: {why}", False, obstacles[0].get("next_step", ""))
