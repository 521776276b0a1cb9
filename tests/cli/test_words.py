"""What a model says, as `optimize -v` and `attach -v` print it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kernel_assistant.cli.app import cli
from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.events import Called, ModelSaid, Progress

REPLY = ModelSaid(
    conversation=2,
    turn=1,
    role="assistant",
    text="first\nsecond",
    calls=(Called(name="evaluate", arguments="{}"),),
    time=3.0,
)
ANSWER = ModelSaid(conversation=2, turn=1, role="tool", text="ok .2", time=4.0)


def said(capsys, *, words):
    with choose_progress("job", silent=False, words=words) as progress:
        for event in (Progress(phase="search", message="searching", time=2.0), REPLY, ANSWER):
            progress.show(event)
    return capsys.readouterr().err.splitlines()


def test_words_come_line_by_line_with_their_conversation(capsys):
    assert said(capsys, words=True) == [
        "[  0.0 s] searching",
        "[  1.0 s] model 2: first",
        "[  1.0 s] model 2: second",
        "[  1.0 s] model 2: evaluate {}",
        "[  2.0 s] tool 2: ok .2",
    ]


def test_without_being_asked_for_they_are_left_out(capsys):
    assert said(capsys, words=False) == ["[  0.0 s] searching"]


@pytest.mark.parametrize("command", ["optimize", "attach"])
def test_the_commands_take_it(command):
    assert "--verbose" in CliRunner().invoke(cli, [command, "--help"]).output
