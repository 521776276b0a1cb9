"""The events of jobs as a page, from the event logs of real jobs."""

from __future__ import annotations

import re

from kernel_assistant.events import JobFailed, ModelReplied, RequestedTool
from kernel_assistant_lsp.features.transcript import text_of
from tests.tui.parts.events import GENERATOR, MODEL, events_of, wrong


def test_a_models_job_is_told_with_what_was_said_and_what_came_of_it():
    text = text_of(events_of(MODEL))
    assert text.count("### the task") == 1 and text.count("conversation 8, turn 1") == 1
    assert "```cpp" in text and re.search(r"turn \d+: correct, .* torch.compile", text) and "**ended: " in text
    # What the user knows is cut, what the model wrote is not.
    written = [
        event.text for event in events_of(MODEL) if isinstance(event, ModelReplied) and event.role == "assistant"
    ]
    assert written and all(one in text for one in written)


def test_pages_of_parts_put_together_are_the_page_of_all():
    for log in (GENERATOR, MODEL):
        events = events_of(log)
        assert text_of(events) == text_of(events[:9]) + text_of(events[9:])


def test_calls_answers_words_and_failures():
    write = RequestedTool(name="write", arguments='{"path": "a.cu", "text": "int a;\\nint b;"}')
    calls = (write, RequestedTool(name="odd", arguments="{no json"))
    reply = ModelReplied(conversation=1, turn=2, role="assistant", text="a plan", calls=calls, tokens=10, seconds=1.25)
    told = [
        reply,
        ModelReplied(conversation=1, turn=2, role="tool", text="line\n" * 60, candidate="abcdefgh1234"),
        ModelReplied(conversation=1, turn=3, role="user", text="be quick"),
        wrong("bad", 1, errors=14),
        JobFailed(cause="no compiler", next_step="install one", exit_code=3),
    ]
    text = text_of(told)
    assert "model, turn 2, 10 tokens in 1.2 s" in text and "conversation" not in text
    assert "calls `write` path=a.cu\n\n```cpp\nint a;\nint b;\n```" in text and "```cpp\n{no json\n```" in text
    assert "_answer abcdefgh_" in text and "> … and 20 more lines" in text
    assert "### to the model\n\n> be quick" in text
    assert "turn 1: compile error\n> it does not compile\n> kernel.cpp:3: error: error 0\n" in text
    assert "> … and 3 more lines" in text
    assert "**failed: no compiler** Next: install one" in text
