"""The commands `kernel-assistant config get|set|unset|list|path`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kernel_assistant.cli.common import json_option
from kernel_assistant.cli.text import say_warning, table
from kernel_assistant.config import (
    Settings,
    check_value,
    documentation,
    is_for_projects,
    nearest_pyproject,
    trace,
    user_file,
)
from kernel_assistant.errors import EXIT_OK, UsageError
from kernel_assistant.session.settings_file import PROJECT_TABLE, kept_form, set_in_file, unset_in_file

_project = click.option("--project", is_flag=True, help="Settings of the nearest pyproject.toml, not of the user file.")


@click.group("config")
def config_command() -> None:
    """Settings in layers: defaults, user file, pyproject.toml, KERNEL_ASSISTANT_* variables, options."""


@config_command.command("list")
@json_option
def list_command(as_json: bool) -> int:
    """Every setting for this folder, its value, and where that comes from."""
    settings, origins, warnings = trace(Path.cwd())
    for warning in warnings:
        say_warning(warning)
    if as_json:
        print(
            json.dumps(
                {
                    name: {"value": _plain(settings, name), "layer": origin.layer, "where": origin.where, "doc": doc}
                    for (name, doc), origin in zip(documentation().items(), origins.values(), strict=True)
                }
            )
        )
        return EXIT_OK
    rows: list[tuple[str, ...]] = [
        (name, _shown(settings, name), origin.where or origin.layer, documentation()[name])
        for name, origin in origins.items()
    ]
    print("\n".join(table(("setting", "value", "from", "what"), rows)))
    return EXIT_OK


@config_command.command("get")
@click.argument("key")
def get_command(key: str) -> int:
    """The value of KEY for this folder."""
    name = _known(key)
    print(_shown(trace(Path.cwd())[0], name))
    return EXIT_OK


@config_command.command("set")
@click.argument("key")
@click.argument("value")
@_project
def set_command(key: str, value: str, project: bool) -> int:
    """Write KEY = VALUE into the user file."""
    name = _known(key)
    kept = kept_form(name, value)
    path = _file(name, project)
    set_in_file(path, name, kept, PROJECT_TABLE if project else "")
    print(f"{path}: {name} = {value}")
    _say_if_hidden(name, "project" if project else "user file")
    return EXIT_OK


@config_command.command("unset")
@click.argument("key")
@_project
def unset_command(key: str, project: bool) -> int:
    """Take KEY out of the user file again."""
    # Unknown names are allowed: they are what a user wants to remove.
    name = key.replace("-", "_")
    path = _file(name, project)
    if not unset_in_file(path, name, PROJECT_TABLE if project else ""):
        raise UsageError(f"{path} does not set {key}", "kernel-assistant config list shows where a value comes from")
    print(f"{path}: {name} is not set any more")
    return EXIT_OK


@config_command.command("path")
@_project
def path_command(project: bool) -> int:
    """Where the user file lies, there or not."""
    print(_file("", project))
    return EXIT_OK


def set_user_value(name: str, value: str) -> None:
    """Write one setting into the user's file. Other commands use this function. Raises UsageError."""
    set_in_file(user_file(), name, kept_form(name, value))
    _say_if_hidden(name, "user file")


def _known(key: str) -> str:
    name = key.replace("-", "_")
    if name not in documentation():
        check_value(name, "")
    return name


def _file(name: str, project: bool) -> Path:
    if not project:
        return user_file()
    path = nearest_pyproject(Path.cwd())
    if path is None:
        raise UsageError("there is no pyproject.toml here or above", "make one, or leave --project out")
    if name in documentation() and not is_for_projects(name):
        raise UsageError(f"a project cannot set {name}", "leave --project out")
    return path


def _say_if_hidden(name: str, layer: str) -> None:
    origin = trace(Path.cwd())[1][name]
    if origin.layer != layer:
        say_warning(f"here {name} comes from {origin.where or origin.layer}, which goes over it")


def _shown(settings: Settings, name: str) -> str:
    value = _plain(settings, name)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _plain(settings: Settings, name: str) -> object:
    value = getattr(settings, name)
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
