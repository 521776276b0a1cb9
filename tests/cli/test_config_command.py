"""Tests `config` as a user runs it, and the code that changes single lines of the file."""

from __future__ import annotations

import json
import tomllib

import pytest

from kernel_assistant.cli.modules.optimize import optimize_command
from kernel_assistant.config import documentation, user_file
from kernel_assistant.session.settings_file import with_line, without_line
from tests.common.commands import run_here

#: They name one call, not how calls are made.
OF_ONE_CALL = {"top", "file", "scan", "as_json", "verbose"}


def test_every_option_of_optimize_has_a_key():
    names = {parameter.name for parameter in optimize_command.params}
    assert names - OF_ONE_CALL <= set(documentation())
    defaults = {parameter.name: parameter.default for parameter in optimize_command.params}
    assert all(defaults[name] is None or "UNSET" in repr(defaults[name]) for name in names - OF_ONE_CALL), defaults


def test_what_is_set_holds_until_it_is_unset(home, monkeypatch):
    monkeypatch.delenv("KERNEL_ASSISTANT_TARGET")
    path = user_file()
    assert run_here("config", "path").stdout == f"{path}\n"
    assert run_here("config", "get", "budget").stdout == "120\n"
    done = run_here("config", "set", "budget", "2m")
    assert done.returncode == 0 and done.stdout == f"{path}: budget = 2m\n" and done.stderr == ""
    run_here("config", "set", "host-idle-seconds", "90")
    run_here("config", "set", "free_wins", "off")
    assert tomllib.loads(path.read_text()) == {"budget": "2m", "host_idle_seconds": 90, "free_wins": False}
    assert run_here("config", "get", "budget").stdout == "120\n"
    assert run_here("config", "get", "free-wins").stdout == "false\n"
    listed = json.loads(run_here("config", "list", "--json").stdout)
    layer = {"layer": "user file", "where": f"{path}:1", "doc": documentation()["budget"]}
    assert listed["budget"] == {"value": 120.0, **layer}
    assert run_here("config", "unset", "free_wins").returncode == 0
    assert run_here("config", "get", "free_wins").stdout == "true\n"
    again = run_here("config", "unset", "free_wins")
    assert again.returncode == 2 and again.stderr.startswith(f"error: {path} does not set free_wins\nnext: ")


def test_a_project_file_in_another_encoding_is_named(home):
    path = home / "pyproject.toml"
    path.write_bytes(b"# caf\xe9\n")
    for words in (("set", "target", "cpu"), ("unset", "target")):
        done = run_here("config", *words, "--project")
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert str(path) in done.stderr
    assert path.read_bytes() == b"# caf\xe9\n"


def test_the_project_goes_over_the_user_and_a_variable_over_both(home, monkeypatch):
    monkeypatch.delenv("KERNEL_ASSISTANT_TARGET")
    (home / "pyproject.toml").write_text('[project]\nname = "x"  # kept\n\n[tool.other]\na = 1\n')
    run_here("config", "set", "target", "cuda")
    done = run_here("config", "set", "target", "cpu", "--project")
    assert done.stdout == f"{home / 'pyproject.toml'}: target = cpu\n"
    assert (home / "pyproject.toml").read_text() == (
        '[project]\nname = "x"  # kept\n\n[tool.other]\na = 1\n\n[tool.kernel-assistant]\ntarget = "cpu"\n'
    )
    lines = run_here("config", "list").stdout.splitlines()
    (target,) = [line for line in lines if line.startswith("target ")]
    assert target.split()[1:3] == ["cpu", f"{home / 'pyproject.toml'}:8"]
    hidden = run_here("config", "set", "target", "auto")
    assert "pyproject.toml:8, which goes over it" in hidden.stderr
    assert run_here("config", "get", "target", KERNEL_ASSISTANT_TARGET="auto").stdout == "auto\n"
    assert run_here("config", "unset", "target", "--project").returncode == 0
    assert run_here("config", "get", "target").stdout == "auto\n"


def test_bad_use_is_one_line_that_says_what_was_meant(home):
    cases = {
        ("get", "bugdet"): "unknown setting 'bugdet' (did you mean budget?)",
        ("set", "target", "cudo"): "(did you mean cuda?)",
        ("set", "target", "cpu", "--project"): "no pyproject.toml",
    }
    for arguments, words in cases.items():
        done = run_here("config", *arguments)
        lines = done.stderr.splitlines()
        assert done.returncode == 2 and len(lines) == 2 and words in lines[0], done.stderr
    (home / "pyproject.toml").write_text("")
    refused = run_here("config", "set", "sandbox", "none", "--project")
    assert refused.returncode == 2 and "a project cannot set sandbox" in refused.stderr
    (home / "pyproject.toml").write_text("[tool.kernel-assistant]\nbudgit = 3\n")
    broken = run_here("config", "list")
    assert broken.returncode == 2
    assert f"{home / 'pyproject.toml'}:2: unknown setting 'budgit' (did you mean budget?)" in broken.stderr


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("", ""),
        ("a = 1", ""),
        ("# note\na = 1\n\n[t]\nkey = 2\n", ""),
        ("[x]\nkey = 3\n[t]\n# first\nb = 1\n\n[y]\nkey = 4\n", "t"),
        ("[x]\nb = 1\n", "t"),
    ],
)
def test_one_line_is_set_changed_and_removed(text, table):
    def value(written):
        found = tomllib.loads(written)
        return (found.get(table, {}) if table else found).get("key")

    once = with_line(text, "key", 'a "quoted" name', table)
    assert value(once) == 'a "quoted" name'
    twice = with_line(once, "key", ("a", "b"), table)
    assert value(twice) == ["a", "b"] and twice.count("\n") == once.count("\n")
    assert [line for line in text.splitlines() if line] == [
        line for line in without_line(twice, "key", table).splitlines() if line and line != f"[{table}]"
    ] or "[t]" in text
    assert value(without_line(twice, "key", table)) is None
