"""Tests the events that watchers get of a conversation while it goes on."""

from __future__ import annotations

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.conversation import MOST_TEXT, event_of
from kernel_assistant.agent.loop import run_episode
from kernel_assistant.events import CandidateEvaluated, ModelReplied, decode_event, encode_event
from kernel_assistant.records import Tier
from kernel_assistant.records.transcript import Message, Usage
from tests.agent.models import EVALUATE, FINISH, NORM, calls, model, write


def test_every_message_comes_in_order_but_the_systems(norm, cancel, tmp_path):
    told = []
    lines = [calls(write(NORM), text="a plan"), calls(EVALUATE), calls(FINISH)]
    policy = model(norm, tmp_path / "workspace", lines, steering=["be quick"], emit=told.append)
    run_episode(norm, policy, Budget(seconds=600), emit=told.append, cancel=cancel)
    judged = [(event.conversation, event.evaluation.tier) for event in told if isinstance(event, CandidateEvaluated)]
    assert judged == [(1, Tier.quick), (0, Tier.full)]
    heard = [event for event in told if isinstance(event, ModelReplied)]
    kept = [message for message in policy.transcript().messages if message.role != "system"]
    assert [event.role for event in heard] == [message.role for message in kept]
    assert [event.text[:20] for event in heard] == [message.content[:20] for message in kept]
    first = next(event for event in heard if event.role == "assistant")
    assert (first.turn, first.conversation, first.tokens, first.calls[0].name) == (1, 1, 10, "write")
    assert "norm" in first.calls[0].arguments
    report = next(event for event in heard if event.candidate)
    assert report.role == "tool" and report.turn == 2
    assert decode_event(encode_event(first)) == first


def test_what_is_long_is_cut_and_says_so():
    event = event_of(Message(role="assistant", content="x" * (MOST_TEXT + 1), usage=Usage(seconds=2.0)), 3, 7)
    assert event is not None
    assert event.text == "x" * MOST_TEXT + f" [… {MOST_TEXT + 1} characters]"
    assert (event.conversation, event.turn, event.seconds) == (3, 7, 2.0)
