"""The view of a job in the terminal, from real event logs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kernel_assistant.events import JobFailed, JobQueued, ModelReplied, Progress, RequestedTool, Warned
from kernel_assistant.records import Tier
from kernel_assistant.session.reporting.verdicts import verdict
from kernel_assistant.store import JobState
from kernel_assistant_tui.view.folding import fold
from kernel_assistant_tui.view.lines import LineKind
from kernel_assistant_tui.view.search_view import SearchView
from kernel_assistant_tui.view.telling import MOST_ANSWER, MOST_DIAGNOSTICS
from tests.tui.parts.events import GENERATOR, MODEL, events_of, folded, right, wrong


def texts(view, *kinds):
    return [line.text for line in view.lines if not kinds or line.kind in kinds]


def test_a_generators_job():
    events = events_of(GENERATOR)
    view = folded(events)
    result = events[-1].result
    assert (view.state, view.result) == (JobState.done, result)
    assert len(view.candidates) == result.evaluations
    assert view.best is not None and view.best.confirmed
    assert view.shown is not None and view.shown.full is not None
    assert view.seq == len(events) and view.now - view.began == pytest.approx(events[-1].time - events[0].time)
    gains = [turn.vs_eager for turn in view.turns if turn.vs_eager is not None]
    assert gains == sorted(gains) and len(gains) == len(view.turns)
    assert texts(view, LineKind.end) == [f"ended: {verdict(result)}"]


def test_a_models_job_has_its_conversations_and_says_nothing_twice():
    view = folded(events_of(MODEL))
    assert view.conversations == 8
    spoken = {line.conversation for line in view.lines if line.kind is LineKind.code}
    assert spoken == set(range(1, 9))
    assert sum(text.startswith("the task:") for text in texts(view)) == 1
    assert all(before != after for before, after in zip(texts(view), texts(view)[1:], strict=False))
    assert texts(view).count("searching") == 1
    assert next(line.text for line in view.lines if line.conversation == 4 and line.kind is LineKind.code) == "```cpp"
    assert len(texts(view, LineKind.good)) == 3 and len(texts(view, LineKind.bad)) == 7


@pytest.mark.parametrize("log", [GENERATOR, MODEL], ids=["generator", "model"])
def test_a_log_gives_one_view_at_once_event_by_event_and_to_who_comes_late(log):
    events = events_of(log)
    single, late = SearchView(job="1"), folded(events[:20])
    for event in events:
        single = fold(single, event)
    for event in events[10:]:  # attached again, from before where it was
        late = fold(late, event)
    for view in (single, late):
        assert list(folded(events).lines) == list(view.lines)
        assert replace(folded(events), lines=view.lines) == view


def test_views_that_part_do_not_see_each_others_lines():
    start = fold(SearchView(job="1"), Progress(phase="open", message="open"))
    left = fold(start, Warned(message="left"))
    other = fold(start, Warned(message="right"))
    assert texts(start) == ["open"]
    assert texts(left) == ["open", "warning: left"] and texts(other) == ["open", "warning: right"]
    with pytest.raises(IndexError):
        start.lines[1]
    assert start.lines[-1].text == "open" and [line.text for line in left.lines[1:]] == ["warning: left"]


def test_a_finalist_that_fails_in_full_counts_no_longer():
    view = folded([right("a", 1), right("b", 2, 2.0)])
    assert view.counts == "2 tried, 2 correct"
    view = fold(view, wrong("a", 3, tier=Tier.full))
    assert view.counts == "2 tried, 1 correct"
    seen = view.seen("a")
    assert seen is not None and seen.quick is not None and seen.full is not None and seen.speedup is None
    assert [one.candidate for one in view.candidates] == ["a", "b"]
    assert [turn.number for turn in view.turns] == [1, 2]


def test_a_turn_that_ends_late_counts_for_its_own_and_those_behind_it():
    view = folded([wrong("a", 1), right("b", 3, 2.0), right("c", 2, 1.0, compiled=None)])
    figures = [(turn.number, turn.tried, turn.correct, turn.vs_eager, turn.vs_compile) for turn in view.turns]
    assert figures == [(1, 1, 0, None, None), (2, 1, 1, 4.0, None), (3, 1, 1, 4.0, 1.0)]


def test_compiler_errors_have_their_lines_and_do_not_flood():
    view = folded([wrong("abcdefghij", 4, errors=MOST_DIAGNOSTICS + 5)])
    head, *details = texts(view)
    assert head == "turn 4  abcdefgh  quick  compile error: it does not compile"
    assert details[0] == "  kernel.cpp:3: error: error 0"
    assert len(details) == MOST_DIAGNOSTICS + 1 and details[-1] == "  and 5 more"


def test_a_message_that_comes_again_is_told_once():
    event = wrong("a", 1, errors=3)
    again = replace(event.evaluation, diagnostics=event.evaluation.diagnostics * 4)
    assert texts(folded([replace(event, evaluation=again)])) == texts(folded([event]))


def test_what_a_conversation_tried_has_its_number():
    view = folded([replace(wrong("a", 1, errors=2), conversation=3), replace(right("b", 2, 1.0), conversation=1)])
    assert [(line.kind, line.conversation) for line in view.lines] == [
        (LineKind.bad, 3),
        (LineKind.detail, 3),
        (LineKind.detail, 3),
        (LineKind.good, 1),
    ]


def test_a_job_that_fails_says_what_to_do():
    failed = JobFailed(cause="no inputs", next_step="draft", exit_code=2)
    view = folded([JobQueued(task="m.py:M", target="cpu"), failed])
    assert view.state is JobState.failed and view.failure is not None
    assert texts(view)[-2:] == ["failed: no inputs", "next: draft"]


def told(role, text, calls=(), turn=2, **more):
    event = ModelReplied(conversation=3, turn=turn, role=role, text=text, calls=calls, **more)
    view = fold(SearchView(job="1"), event)
    assert all(line.conversation == (3 if turn else 0) for line in view.lines)
    return [(line.kind, line.text) for line in view.lines]


def test_a_call_shows_short_arguments_beside_and_a_file_below():
    call = RequestedTool(name="write", arguments='{"path": "kernel.cu", "text": "int a;\\n  int b;\\n"}')
    assert told("assistant", "Try this.", (call,), tokens=12, seconds=0.51) == [
        (LineKind.phase, "model, turn 2, 12 tokens in 0.5 s"),
        (LineKind.said, "Try this."),
        (LineKind.call, "> write path=kernel.cu"),
        (LineKind.code, "  int a;"),
        (LineKind.code, "    int b;"),
    ]


def test_code_in_what_is_said():
    kinds = [kind for kind, _ in told("assistant", "before\n```cpp\nint a;\n```\nafter")[1:]]
    assert kinds == [LineKind.said, LineKind.code, LineKind.code, LineKind.code, LineKind.said]


@pytest.mark.parametrize("arguments", ["{broken", "[1, 2]", '"text"', ""])
def test_arguments_that_are_no_object_are_shown_as_they_are(arguments):
    lines = told("assistant", "", (RequestedTool(name="edit", arguments=arguments),))
    assert lines[1][1] == "> edit"
    assert [text for _, text in lines[2:]] == [f"  {line}" for line in arguments.splitlines()]


def test_long_answers_are_cut_and_what_they_report_on_is_named():
    lines = told("tool", "\n".join(f"line {n}" for n in range(MOST_ANSWER + 10)), candidate="0123456789abcdef")
    assert lines[0] == (LineKind.heard, "< 01234567 line 0")
    assert len(lines) == MOST_ANSWER + 1 and lines[-1][1] == "  and 10 more lines"
    assert told("user", "hurry\nup") == [(LineKind.user, "to the model: hurry"), (LineKind.user, "up")]
