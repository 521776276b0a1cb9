"""Tests the display of a model's replies by `optimize -v` and `attach -v`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from kernel_assistant.cli.app import cli
from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.events import BestImproved, JobQueued, JobStarted, ModelReplied, Progress, RequestedTool
from kernel_assistant.records import Spending
from kernel_assistant.session.reporting import words
from tests.tui.parts.events import GENERATOR, events_of

SEARCHING = Progress(phase="search", message="searching", time=2.0)
CALLS = (RequestedTool(name="evaluate", arguments="{}"),)
REPLY = ModelReplied(conversation=2, turn=1, role="assistant", text="first\nsecond", calls=CALLS, time=3.0)
ANSWER = ModelReplied(conversation=2, turn=1, role="tool", text="ok .2", time=4.0)


def said(capsys, *events, words=False):
    """The lines that these events of a job give."""
    with choose_progress("job", silent=False, words=words) as progress:
        for event in events:
            progress.show(event)
    return capsys.readouterr().err.splitlines()


def test_words_come_line_by_line_with_their_conversation(capsys):
    assert said(capsys, SEARCHING, REPLY, ANSWER, words=True) == [
        "[  0.0 s] searching",
        "[  1.0 s] model 2: first",
        "[  1.0 s] model 2: second",
        "[  1.0 s] model 2: evaluate {}",
        "[  2.0 s] tool 2: ok .2",
    ]


def test_without_being_asked_for_they_are_left_out(capsys):
    assert said(capsys, SEARCHING, REPLY, ANSWER) == ["[  0.0 s] searching"]


def test_a_sign_of_life_says_what_the_model_has_cost(capsys):
    spent = Spending(requests=3, tokens_in=12_100, tokens_out=1_200, money=0.25)
    first = Progress(phase="model", message="model, turn 1: nothing yet, 5 s", time=5.0)
    later = Progress(phase="model", message="model, turn 4: 90 tokens", time=9.0)
    assert said(capsys, first, replace(REPLY, spent=spent), later, replace(SEARCHING, time=9.0)) == [
        "[  0.0 s] model, turn 1: nothing yet, 5 s",
        "[  4.0 s] model, turn 4: 90 tokens (3 requests, 12.1k tokens in, 1.2k out, cost 0.25)",
        "[  4.0 s] searching",
    ]


def test_the_time_that_is_left_stands_beside_the_time(capsys):
    begun = (JobQueued(task="t", target="cpu", time=1.0), JobStarted(device="cpu:0", budget=20.0, time=2.0))
    confirming = Progress(phase="confirm", message="confirming", time=24.0)
    assert said(capsys, *begun, replace(SEARCHING, time=7.0), confirming) == [
        "[  0.0 s] starting",
        "[  1.0 s, 20 s left] started on cpu:0",
        "[  6.0 s, 15 s left] searching",
        "[ 23.0 s, over its budget] confirming",
    ]


def test_a_job_in_lines(capsys):
    lines = said(capsys, *events_of(GENERATOR))
    assert lines[4:8] == [
        "[  3.2 s] module exported: 8 operators",
        "[  4.0 s] eager 16.2 ms, torch.compile not measured",
        "[  5.2 s] 1 tried, 1 correct; best 4.27 ms, 3.80× eager, not yet confirmed (rows/keep lanes=64 nt=1)",
        "[  5.2 s] measuring torch.compile",
    ]
    assert lines[-4:-2] == [
        "[ 25.1 s] 7 tried, 7 correct; best 4.74 ms, 1.97× torch.compile, confirmed (rows/keep lanes=32 nt=1)",
        "[ 25.1 s] timing the edited file, guard and operator included",
    ]
    assert lines[-1] == "[ 56.8 s] free: compile 2.14× eager"


@pytest.mark.parametrize("command", ["optimize", "attach"])
def test_the_commands_take_it(command):
    assert "--verbose" in CliRunner().invoke(cli, [command, "--help"]).output


def test_many_parts_and_calls_are_counted():
    figures = {"candidate_ms": 1.0, "speedup_vs_eager": 2.0, "speedup_vs_compile": None}
    best = BestImproved(candidate="c", schedule="; ".join(f"part{number}: residual" for number in range(9)), **figures)
    assert words.of_best(best) == "1 ms, 2.00× eager, not yet confirmed (9 parts)"
    share = words._calls([*(f"linear (n{number})" for number in range(4)), "max_pool2d (n9)"])
    assert share == "linear (4 calls), max_pool2d (n9)"
