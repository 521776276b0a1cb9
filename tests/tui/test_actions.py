"""Actions, keys and preferences: one list, and everything that is made from it."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import msgspec
import pytest

from kernel_assistant.cli.app import cli
from kernel_assistant.config import resolve
from kernel_assistant.errors import UsageError
from kernel_assistant.session.edits import FileSelection
from kernel_assistant.session.reporting.class_state import ClassState
from kernel_assistant.store import JobKind
from kernel_assistant_tui.actions import ACTIONS, BY_NAME, table
from kernel_assistant_tui.flows.settings import write
from kernel_assistant_tui.jobs import OpenJob
from kernel_assistant_tui.keys import bindings, footer_keys
from kernel_assistant_tui.preferences import Preferences, read_preferences
from kernel_assistant_tui.project.module import Module
from kernel_assistant_tui.screens.action_context import ActionContext, why_not
from kernel_assistant_tui.screens.panes import PANES
from kernel_assistant_tui.themes import draws_boxes
from kernel_assistant_tui.view.search_view import SearchView
from tests.common.results import result

ROOT = Path(__file__).resolve().parents[2]


def test_every_action_has_a_key_a_flow_and_what_it_does():
    assert len({action.name for action in ACTIONS}) == len({action.key for action in ACTIONS}) == len(ACTIONS)
    for action in ACTIONS:
        assert action.label and action.what
        if action.name not in PANES:
            flow = getattr(importlib.import_module(f"kernel_assistant_tui.flows.{action.flow}"), action.name)
            assert list(inspect.signature(flow).parameters) == ["screen"]


def test_the_commands_that_do_the_same_are_there():
    for action in ACTIONS:
        if action.command and not action.command.startswith("--"):
            assert action.command.split()[0] in cli.list_commands(None)


def test_the_documentation_has_the_keys_as_they_are():
    assert table() in (ROOT / "docs/tui.md").read_text()


def test_the_footer_has_every_action_that_makes_sense():
    keys = footer_keys(Preferences(), lambda action: True, (), "")
    shown = {key.action for key in keys}
    assert shown == {f"screen.act('{one.name}')" for one in ACTIONS if one.name != "next_tab"}
    assert next(key.shown for key in keys if "previous_tab" in key.action) == "[ ]"
    only = footer_keys(Preferences(), lambda action: action.name in ("quit", "modules"), ("quit",), "modules")
    assert [(key.label, key.here) for key in only] == [("modules", True)]


@pytest.mark.parametrize("needs", sorted({action.needs for action in ACTIONS}))
def test_an_action_that_makes_no_sense_says_why(needs):
    nothing = ActionContext(module=None, subject=None, job=None, scanning=False, others=False)
    for action in ACTIONS:
        if action.needs == needs:
            said = why_not(action, nothing)
            assert said.startswith(f"{action.label}: ") if needs else not said


def test_what_there_is_makes_actions_possible():
    applied = Module(Path("m.py"), "m.py", "M", 1, ClassState(applied=True, outcome="improved"))
    now = ActionContext(module=applied, subject=applied, job=None, scanning=True, others=True)
    impossible = {action.name for action in ACTIONS if why_not(action, now)}
    assert impossible == {"steer", "resume", "close_tab", "confirm"}


def test_what_a_job_left_open_can_be_measured_in_full():
    module = Module(Path("m.py"), "m.py", "M", 1, ClassState(unconfirmed="4"))
    view = msgspec.structs.replace(SearchView(job="4"), result=result(artifacts={"plan.json": "p"}))
    job = OpenJob("4", FileSelection(Path("m.py"), "M"), JobKind.optimize, view, "4")
    for now in (
        ActionContext(module=module, subject=module, job=None, scanning=False, others=False),
        ActionContext(module=None, subject=None, job=job, scanning=False, others=False),
    ):
        assert not why_not(BY_NAME["confirm"], now)


def test_bindings_are_named_for_the_keymap():
    assert [binding.id for binding in bindings()] == [action.name for action in ACTIONS]


@pytest.fixture
def user_file(own_state):
    path = own_state / "config.toml"

    def put(text):
        path.write_text(text)
        return path

    return put


def test_keys_and_theme_come_from_the_users_file(user_file):
    found = read_preferences(
        user_file('[tui]\ntheme = "nord"\n[tui.keys]\nstart = "f5"\nsearch = "slash,ctrl+f"\nhelp = "!"\n')
    )
    assert found.theme == "nord"
    assert (found.key("start"), found.key("search"), found.key("help")) == ("f5", "slash,ctrl+f", "exclamation_mark")
    assert found.key("quit") == "q"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tui]\ntheme = "nrod"', "did you mean nord"),
        ('[tui]\ncolour = "x"', "tui.colour"),
        ('[tui.keys]\nstrat = "f5"', "did you mean start"),
        ('[tui.keys]\nstart = "no such key!"', "is no key"),
        ('[tui.keys]\nstart = "x"', "key of start and of cancel"),
        ("[tui.keys]\nstart = 5", "is no key"),
        ("tui = 5", "not a table"),
        ("[tui", "cannot read"),
    ],
)
def test_what_does_not_fit_is_named_with_its_file(user_file, text, words):
    path = user_file(text)
    with pytest.raises(UsageError) as caught:
        read_preferences(path)
    assert words in caught.value.cause and str(path) in caught.value.cause


def test_the_table_of_the_terminal_disturbs_no_command(own_state):
    write("tui.theme", "nord")
    write("budget", "7s")
    write("tui.keys.start", "f5")
    assert resolve()[0].budget == 7.0
    assert read_preferences() == Preferences(theme="nord", keys={"start": "f5"})
    write("tui.keys.start", "")
    write("budget", "")
    assert read_preferences().keys == {} and resolve()[0].budget == 120.0


def test_a_setting_that_does_not_fit_leaves_the_file_alone(own_state):
    write("tui.keys.start", "f5")
    for name, value in (("tui.theme", "no such"), ("tui.keys.start", "q"), ("budget", "never")):
        with pytest.raises(UsageError):
            write(name, value)
    assert read_preferences() == Preferences(keys={"start": "f5"})


@pytest.mark.parametrize(
    ("variables", "boxes"),
    [
        ({"LANG": "de_DE.UTF-8"}, True),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, False),
        ({"LANG": "C", "LC_CTYPE": "en_US.utf8"}, True),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        ({}, False),
        # What Python makes of no locale at all.
        ({"LC_CTYPE": "C.UTF-8"}, False),
        ({"LANG": "C.UTF-8"}, True),
    ],
)
def test_the_locale_decides_on_boxes(monkeypatch, variables, boxes):
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert draws_boxes() is boxes
