"""Tests calls in both forms, and code in a reply."""

from __future__ import annotations

import pytest

from kernel_assistant.agent.calls import calls_of, code_of, plan_of, with_calls
from kernel_assistant.agent.tools import ALL
from kernel_assistant.records.transcript import Message


def said(content: str) -> Message:
    return Message(role="assistant", content=content)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('{"name": "list", "arguments": {"folder": "."}}', ""),
        ('{"name": "list", "arguments": "{}"}', ""),
        ('{"name": "list"}', ""),
        ('{"name": "list", "arguments": {', "not JSON"),
        ("[]", "an object with"),
        ('{"name": 3}', "an object with"),
        ('{"name": "rm", "arguments": {}}', "there is no tool 'rm'"),
    ],
)
def test_hermes_calls(body, problem):
    _, (call,) = with_calls(said(f"text <tool_call>{body}</tool_call>"), ("list",))
    assert call.problem.find(problem) >= 0 if problem else not call.problem


def test_a_call_that_is_cut_off_is_still_one():
    (call,) = calls_of(said('<tool_call>{"name": "list"'), ("list",))
    assert "not JSON" in call.problem
    assert not call.answerable


def test_readable_calls_move_out_of_the_text():
    both = said('I look.\n<tool_call>{"name": "list"}</tool_call>\n<tool_call>{"name": "evaluate"}</tool_call>')
    moved, calls = with_calls(both, ALL)
    assert calls == calls_of(moved, ALL) and all(call.answerable for call in calls)
    assert (moved.content, [call.name for call in moved.tool_calls]) == ("I look.", ["list", "evaluate"])
    assert len({call.id for call in moved.tool_calls}) == 2


def test_code_and_plan():
    reply = "first\n```cpp\nold\n```\nplan: block=256 vec=4\n```cuda\nnew\n  ``` not the end\n```\n"
    assert code_of(reply) == "new\n  ``` not the end\n"
    assert plan_of(reply) == "block=256 vec=4"
    assert (code_of("no code"), plan_of("the plan: none")) == (None, None)


def test_schemas_are_strict():
    for name, tool in ALL.items():
        function = tool.schema["function"]
        parameters = function["parameters"]
        assert (function["name"], function["strict"]) == (name, True)
        assert parameters["required"] == list(parameters["properties"])
        assert parameters["additionalProperties"] is False
        assert function["description"]
        assert all("type" in field or "enum" in field for field in parameters["properties"].values()), parameters
        assert "default" not in str(parameters)
