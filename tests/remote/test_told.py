"""Tests how remote failures are reported here, and which settings name the remote machine."""

from __future__ import annotations

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.errors import Cancelled, HostError, MissingError, UsageError
from kernel_assistant.remote.ssh import explain
from kernel_assistant.remote.told import told


@pytest.fixture
def settings():
    return resolve(None, {"host": "me@box"}, {})[0]


def test_machine_is_named_once(settings):
    error = told(MissingError("no compiler", "install one", detail="all of it"), settings, lost=False)
    assert (error.cause, error.next_step, error.detail) == ("me@box: no compiler", "install one", "all of it")
    assert told(error, settings, lost=False).cause == "me@box: no compiler"
    assert isinstance(error, MissingError)


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("kernel-assistant attach 7 goes on with it", "kernel-assistant attach 7 --host me@box goes on with it"),
        ("kernel-assistant host stop, then try again", "kernel-assistant host stop --host me@box, then try again"),
        ("see the log (kernel-assistant doctor says where)", "kernel-assistant doctor --host me@box says where"),
        ("name another Python: --python PATH", "name another Python: --remote-python PATH"),
        ("name it: --remote-python PATH", "name it: --remote-python PATH"),
        ("kernel-assistant show last", "kernel-assistant show last --host me@box"),
    ],
)
def test_next_step_leads_there(settings, text, there):
    next_step = told(UsageError("x", text), settings, lost=False).next_step
    assert there in next_step
    assert told(UsageError("x", next_step), settings, lost=False).next_step == next_step


def test_folder_is_part_of_the_way():
    settings = resolve(None, {"host": "box", "remote_dir": "/big disk/ka"}, {})[0]
    error = told(HostError("x", "kernel-assistant attach 7"), settings, lost=True)
    assert error.cause == "box: the connection was lost; what runs there goes on"
    assert error.next_step == "kernel-assistant attach 7 --host box --remote-dir '/big disk/ka'"


def test_only_failures_of_the_connection_are_told_as_such(settings):
    assert "connection" not in told(MissingError("no compiler"), settings, lost=True).cause
    assert told(Cancelled("cancelled"), settings, lost=True).cause == "cancelled"


ENDS = {
    "ended without a word": (255, "", MissingError, "the connection was lost"),
    "unknown words": (255, "kex_exchange_identification: read\nno cipher found\n", MissingError, "no cipher found"),
    "broke over there": (1, "Traceback\nModuleNotFoundError: none\n", HostError, "ModuleNotFoundError: none"),
}


@pytest.mark.parametrize(("code", "printed", "kind", "cause"), ENDS.values(), ids=ENDS)
def test_end_of_a_command_over_there(code, printed, kind, cause):
    error = explain("box", code, printed)
    assert (type(error), error.cause) == (kind, f"box: {cause}")


def test_machine_by_default_and_none_for_this_one(tmp_path):
    environment = {"KERNEL_ASSISTANT_HOST": "box", "KERNEL_ASSISTANT_SHIP": "data, *.txt", "HOME": str(tmp_path)}
    settings, _ = resolve(None, {}, environment)
    assert (settings.host, settings.ship) == ("box", ("data", "*.txt"))
    assert resolve(None, {"host": "none"}, environment)[0].host == ""


def test_project_says_what_is_shipped_but_not_where_to(tmp_path):
    text = '[tool.kernel-assistant]\nship = ["data"]\nhost = "evil"\nremote-dir = "/"\n'
    (tmp_path / "pyproject.toml").write_text(text)
    settings, warnings = resolve(tmp_path, {}, {"HOME": str(tmp_path)})
    assert (settings.ship, settings.host, settings.remote_dir) == (("data",), "", "")
    assert len(warnings) == 2


@pytest.mark.parametrize("value", [3, ["a", 1]])
def test_ship_is_a_list_of_patterns(value):
    with pytest.raises(UsageError, match="ship"):
        resolve(None, {"ship": value}, {})
