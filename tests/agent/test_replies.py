"""Replies as the chat templates of model families have them: the same two calls in all forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_assistant.agent.calls import calls_of, source_of, with_calls
from kernel_assistant.agent.replies.reader import read
from kernel_assistant.agent.replies.reasoning import without_reasoning
from kernel_assistant.records.transcript import Message

#: Replies of each family that write a file and evaluate it, after the family's template.
SAMPLES: dict[str, str] = json.loads((Path(__file__).parent / "reply_samples.json").read_text(encoding="utf-8"))
CONTENT = '#include "a.h"\nint x = a < b ? 1 : 0; // "q"'
WRITTEN = ("write_file", {"path": "k.cpp", "content": CONTENT})
EVALUATED = ("evaluate", {"tier": "quick", "counters": "true"})


def _read(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for call in read(text).calls:
        assert not call.problem, call.problem
        values = json.loads(call.arguments)
        found.append(
            (call.name, {name: str(value).lower() if name == "counters" else value for name, value in values.items()})
        )
    return found


@pytest.mark.parametrize("name", SAMPLES)
def test_each_form_is_read(name: str) -> None:
    text = SAMPLES[name]
    assert _read(text) == [wanted for wanted in (WRITTEN, EVALUATED) if wanted[0] in text]
    found = read(text)
    assert found.reasoning in ("", "T") and found.text in ("", "Plan", "Done")
    assert (found.reasoning == "T") == any(mark in text for mark in ("T</", "T\n</", "T[/THINK]", "T<|end|>", ">T"))


@pytest.mark.parametrize(
    "name", [name for name in SAMPLES if "gpt_oss" not in name and not read(SAMPLES[name]).reasoning]
)
def test_tags_within_reasoning_are_no_calls(name: str) -> None:
    """The model thinks about the very tags that it will write."""
    thought = f"I could write {SAMPLES[name]} now."
    text = SAMPLES[name]
    found = read(f"<think>{thought.replace('</think>', '')}</think>\n{text}")
    assert [call.name for call in found.calls] == [call.name for call in read(text).calls]
    assert read(f"<think>{thought}").calls == ()


@pytest.mark.parametrize("name", [name for name in SAMPLES if "pythonic" not in name and "gpt_oss" not in name])
def test_a_reply_that_is_cut_off_has_no_wrong_call(name: str) -> None:
    """Wherever it ends, a call is whole or has a problem; bare values may be shorter, since nothing ends them."""
    text = SAMPLES[name]
    whole = {call.name: call.arguments for call in read(text).calls}
    bare = "=" in text.partition("k.cpp")[0] or "arg_value" in text
    for end in range(1, len(text), 7):
        for call in read(text[:end]).calls:
            assert call.problem or call.name in whole
            assert call.problem or bare or call.arguments == whole[call.name]


JSON = '{"path": "k.cpp", "content": %s}'
FORMS = {
    "hermes": '<tool_call>\n{"name": "write_file", "arguments": ' + JSON + "}\n</tool_call>",
    "mistral": "[TOOL_CALLS]write_file[ARGS]" + JSON,
    "llama": '{"name": "write_file", "parameters": ' + JSON + "}",
    "kimi": "<|tool_call_begin|>functions.write_file:0<|tool_call_argument_begin|>" + JSON + "<|tool_call_end|>",
    "qwen": "<tool_call>\n<function=write_file>\n<parameter=path>\nk.cpp\n</parameter>\n<parameter=content>\n%s\n"
    "</parameter>\n</function>\n</tool_call>",
}


@pytest.mark.parametrize(
    ("form", "tag"),
    [
        *((form, tag) for form in ("hermes", "mistral", "kimi") for tag in ("</tool_call>", "[TOOL_CALLS]x[ARGS]{}")),
        *(("hermes", tag) for tag in ("<tool_call>", '<tool_call>{"name": "rm"}</tool_call>')),
        ("llama", "}; {"),
        *(("qwen", tag) for tag in ("</parameter>", "<parameter", "[TOOL_CALLS]")),
    ],
)
def test_a_file_may_speak_of_tags(form: str, tag: str) -> None:
    content = f"int a; // {tag} is a tag\nint b;"
    written = content if form == "qwen" else json.dumps(content)
    assert _read(FORMS[form] % written) == [("write_file", {"path": "k.cpp", "content": content})]


@pytest.mark.parametrize(
    ("text", "reasoning", "rest"),
    [
        ("T\n</think>\n\nDone", "T", "Done"),
        ("<think>T</think>Done", "T", "Done"),
        ("<think>\n\n</think>\n\nDone", "", "Done"),
        ("[THINK]T[/THINK]Done", "T", "Done"),
        ("◁think▷T◁/think▷Done", "T", "Done"),
        ("<seed:think>T</seed:think>\nDone", "T", "Done"),
        ("<think>first it is cut off", "first it is cut off", ""),
        ("<think>one</think>between<think>two</think>Done", "one\ntwo", "betweenDone"),
        ("the tag <think> is mentioned", "", "the tag <think> is mentioned"),
    ],
)
def test_reasoning(text: str, reasoning: str, rest: str) -> None:
    assert without_reasoning(text) == (reasoning, rest)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_reply_and_what_is_kept_of_it_have_the_same_calls(name: str) -> None:
    for text in (SAMPLES[name], SAMPLES[name][: len(SAMPLES[name]) // 2]):
        kept, calls = with_calls(Message(role="assistant", content=text), ("write_file",))
        assert calls == calls_of(kept, ("write_file",))


def test_reasoning_leaves_the_text_of_a_reply_whose_calls_came_apart() -> None:
    said = Message(role="assistant", content="<think>hm, <tool_call>?</think>I look.", reasoning="first")
    kept, calls = with_calls(said, ())
    assert not calls
    assert (kept.content, kept.reasoning, kept.tool_calls) == ("I look.", "first\nhm, <tool_call>?", ())


@pytest.mark.parametrize(
    "text", ['{"a": 3}', "[1, 2]", "{this is no JSON}", "x = 3", "hello", "f(3)", "print('hello')  # why", "[f(x)]"]
)
def test_what_is_no_call_stays_text(text: str) -> None:
    found = read(text)
    assert (found.calls, found.text) == ((), text)


def test_line_ends_within_json_and_arguments_as_a_string() -> None:
    text = '<tool_call>{"name": "list", "arguments": "{\\"folder\\": \\".\\"}"}</tool_call>'
    assert _read(text) == [("list", {"folder": "."})]
    text = '<tool_call>{"name": "write_file", "arguments": {"content": "a\nb"}}'
    assert _read(text) == [("write_file", {"content": "a\nb"})]


def test_the_unit_among_several_fences() -> None:
    unit = "// launch: k(x=x0)\nvoid k() {}\n"
    reply = f"```bash\nmake\n```\n```cpp\n{unit}```\n```cpp\nint main() {{}}\n```\n"
    assert source_of(reply) == unit
    assert source_of("```cpp\nint a;\n```\n```text\nnothing\n```\n") == "int a;\n"
    assert source_of("```text\nnothing\n```\n```cpp\nint cut") is None
