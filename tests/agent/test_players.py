"""Tests which policies play a job: models over HTTP, several conversations at once, the generator; and what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.agent.guidance import Guidance, read_guidance
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.events import ModelReplied, Progress, Warned
from kernel_assistant.policy.base import PolicyAction
from kernel_assistant.records import Price, StopReason
from kernel_assistant.serving import registry
from kernel_assistant.session.kinds import job_policies
from tests.agent.models import EVALUATE, FINISH, LAUNCH, NORM, WRONG, write
from tests.judge.kernels import candidate
from tests.policy.endpoint import calling, served, text


class ByHand:
    """Stands in for the generator."""

    name = "by hand"

    def __init__(self, *edits):
        self._edits = edits

    def supports(self, graph, target):
        return None

    def step(self, view):
        return PolicyAction("all", finished=True) if view.steps else PolicyAction("one", (candidate(*self._edits),))


@pytest.fixture
def endpoint():
    with served() as server:
        yield server


@pytest.fixture(autouse=True)
def generator(monkeypatch):
    monkeypatch.setattr(job_policies, "generator", ByHand)


@pytest.mark.slow
def test_a_model_over_http_and_what_is_kept_of_it(job, endpoint):
    wrong, right = (calling(write(source), EVALUATE) for source in (WRONG, NORM))
    endpoint.answers += [wrong, text("I think"), right, calling(FINISH)]
    trajectory = job(said=["be quick"], policy="model", endpoint=endpoint.url)
    assert (trajectory.stop_reason, trajectory.policy) == (StopReason.finished, "model")
    assert trajectory.final.correct
    (transcript,) = job.store.transcripts.of("1")
    assert (transcript.model, transcript.profile, transcript.ending) == ("small", "full", "finished")
    roles = " ".join(message.role for message in transcript.messages)
    assert roles == "system user user assistant tool tool assistant user assistant tool tool assistant"
    # What was sent last is what the transcript gives for that turn.
    assert [message.openai() for message in transcript.prompt(4)] == endpoint.bodies[-1]["messages"]
    assert transcript.messages[2].content == "be quick"
    assert len(transcript.tools) == len(endpoint.bodies[0]["tools"]) == 9


def test_auto_lets_the_generator_play_after_the_model(job, endpoint):
    endpoint.answers += [calling(write(WRONG), EVALUATE), calling(FINISH)]
    trajectory = job(policy="auto", endpoint=endpoint.url)
    assert [step.candidates[0].origin for step in trajectory.steps] == ["model", "test"]
    assert [step.turn for step in trajectory.steps] == [1, 2]
    assert (trajectory.policy, trajectory.best) == ("by hand", candidate().hash())


def test_auto_without_a_model_or_with_a_dead_one_is_the_generator(job, monkeypatch):
    # Wrong: nothing needs to be confirmed in full where that is not the point.
    monkeypatch.setattr(job_policies, "generator", lambda: ByHand(("1e-6f", "1e-1f")))
    monkeypatch.setattr(registry, "SHIPPED", Path("nothing.gguf"))
    assert job(policy="auto").policy == "by hand"
    assert not [event for event in job.events if isinstance(event, Warned)]
    said = [event.message for event in job.events if isinstance(event, Progress)]
    assert "no model is installed: the generator writes kernels alone" in said
    assert job(policy="auto", endpoint="http://127.0.0.1:9/v1").policy == "by hand"
    (warned,) = [event for event in job.events if isinstance(event, Warned)]
    assert "cannot be reached" in warned.message
    with pytest.raises(MissingError, match="cannot be reached"):
        job(policy="model", endpoint="http://127.0.0.1:9/v1")


def one_attempt(source_of):
    """An answer: a conversation writes the source of its seed and evaluates it, and finishes at its next turn."""

    def answer(request):
        told = any(message["role"] == "tool" for message in request.body["messages"])
        (calling(FINISH) if told else calling(write(source_of(request.body["seed"])), EVALUATE))(request)

    return answer


def test_the_best_of_several_conversations_at_once(job, endpoint):
    """Three conversations share the device and the script. The replies of each depend on the messages that it got."""
    wrong = [WRONG.replace(LAUNCH, f"{LAUNCH}// {number}\n") for number in range(4)]
    endpoint.answers += [one_attempt(lambda seed: NORM if seed == 2 else wrong[seed])] * 6
    trajectory = job(policy="model", endpoint=endpoint.url, episodes=3)
    assert trajectory.stop_reason is StopReason.finished
    assert [step.turn for step in trajectory.steps] == [1, 2, 3]
    (best,) = [one for step in trajectory.steps for one in step.candidates if one.hash() == trajectory.best]
    assert best.sources["kernel.cpp"] == NORM
    assert [len(one.replies) for one in job.store.transcripts.of("1")] == [2, 2, 2]


def test_what_two_conversations_write_alike_is_judged_once(job, endpoint):
    endpoint.answers += [one_attempt(lambda seed: WRONG)] * 4
    trajectory = job(policy="model", endpoint=endpoint.url, episodes=2)
    first, second = (evaluation for step in trajectory.steps for evaluation in step.evaluations)
    assert first is second
    assert [message.content for one in job.store.transcripts.of("1") for message in one.messages if message.candidate]
    said = [event.message for event in job.events if isinstance(event, Progress)]
    assert "model small writes kernels, 2 attempts at once" in said


def test_limits_of_a_job_and_of_the_project(job, endpoint, norm, monkeypatch):
    monkeypatch.setattr(job_policies, "guidance_for", lambda path: Guidance(turns=3))
    endpoint.answers += [calling(("list", {"folder": "."}))] * 4
    assert job(policy="model", endpoint=endpoint.url, turns=2).stop_reason is StopReason.turns
    assert len(endpoint.bodies) == 2
    assert job(policy="model", endpoint=endpoint.url, tokens=1).stop_reason is StopReason.tokens
    assert len(endpoint.bodies) == 3
    endpoint.answers[:] = [calling(write(WRONG), EVALUATE), calling(FINISH)]
    assert job(policy="model", endpoint=endpoint.url, device_time=1e-6).stop_reason is StopReason.device_time


#: A reply of the scripted endpoint has 120 tokens in and one out for each of its parts.
PRICE = Price(tokens_in=0.0, tokens_out=1000.0)


def test_a_job_ends_when_its_money_is_spent_and_keeps_what_it_found(job, endpoint):
    endpoint.answers += [calling(write(NORM), EVALUATE), calling(("list", {"folder": "."}))] + [calling(FINISH)] * 3
    trajectory = job(policy="model", endpoint=endpoint.url, money=0.2575, price=PRICE)
    assert (trajectory.stop_reason, trajectory.final.correct) == (StopReason.money, True)
    # The reply may have as many tokens as the money pays, and no reply below 256 is asked for.
    assert [body["max_tokens"] for body in endpoint.bodies] == [257, 256]
    (transcript,) = job.store.transcripts.of("1")
    assert (transcript.ending, len(transcript.replies)) == ("money", 2)
    assert (job.spent.requests, job.spent.tokens_in, job.spent.tokens_out) == (2, 240, 2)
    assert job.spent.money == pytest.approx(0.002) and not job.spent.estimated
    told = [event.spent for event in job.events if isinstance(event, ModelReplied)]
    assert [spent.requests for spent in told if spent] == [1, 2]
    # After a crash the job goes on with what it has spent.
    assert job(policy="model", endpoint=endpoint.url, money=0.2575, price=PRICE).stop_reason is StopReason.money
    assert (len(endpoint.bodies), job.spent.requests) == (2, 2)


def test_conversations_share_the_money_of_their_job(job, endpoint):
    endpoint.answers += [calling(("list", {"folder": "."}))] * 4
    trajectory = job(policy="model", endpoint=endpoint.url, money=0.2575, price=PRICE, episodes=2)
    assert trajectory.stop_reason is StopReason.money
    assert 2 <= len(endpoint.bodies) == job.spent.requests <= 3


def test_a_job_without_a_price_knows_its_tokens_and_refuses_a_limit_of_money(job, endpoint):
    endpoint.answers += [calling(FINISH)]
    job(policy="model", endpoint=endpoint.url)
    assert (job.spent.requests, job.spent.tokens_in, job.spent.money) == (1, 120, None)
    with pytest.raises(UsageError, match="needs the price"):
        job(policy="model", endpoint=endpoint.url, money=1.0)
    job(policy="generator")
    assert job.spent is None


GUIDANCE = '+++\nwithout_tools = ["shell"]\nturns = 5\n+++\nNo shared memory, please.\n'


def test_guidance_of_a_project(tmp_path: Path):
    file = tmp_path / "kernel-assistant.md"
    file.write_text(GUIDANCE)
    found = read_guidance(file)
    assert (found.text, found.turns, found.allowed(("read", "shell"))) == ("No shared memory, please.", 5, ("read",))
    file.write_text("Only text, +++ in it.")
    assert read_guidance(file).text == "Only text, +++ in it."


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ('numerics = "paper"', "'numerics' cannot be set here"),
        ('without_tools = ["evaluate"]', "cannot be taken away"),
        ("turns = 0", "not a positive number"),
        ("turns =", "is not TOML"),
        ("without_tools = 3", "not a list of names"),
    ],
)
def test_guidance_cannot_widen_anything(tmp_path: Path, head: str, why: str):
    file = tmp_path / "kernel-assistant.md"
    file.write_text(f"+++\n{head}\n+++\ntext")
    with pytest.raises(UsageError, match=why):
        read_guidance(file)
