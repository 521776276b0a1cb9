"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kernel_assistant.cli.text import say_warning
from kernel_assistant.config import NUMERICS, POLICIES, SANDBOXES, TARGETS, Settings, resolve

F = TypeVar("F", bound=Callable[..., Any])

_target = click.option("--target", type=click.Choice(TARGETS), help="Device kind (default: a GPU where there is one).")
_policy = click.option("--policy", type=click.Choice(POLICIES), help="Who writes the kernels.")
_budget = click.option(
    "--budget", metavar="TIME", help="Of the search, such as 120s or 2m; confirming adds at most that and ten seconds."
)
_numerics = click.option("--numerics", type=click.Choice(NUMERICS), help="How far from float64 a result may be.")
_python = click.option("--python", metavar="PATH", help="Interpreter with torch (default: found from the project).")
_sandbox = click.option(
    "--sandbox",
    type=click.Choice(SANDBOXES),
    help="Where generated code runs; none: with your rights, unprotected.",
)


def run_options(command: F) -> F:
    """What says how a job runs."""
    for option in (_sandbox, _python, _numerics, _budget, _policy, _target):
        command = option(command)
    return command


def check_options(command: F) -> F:
    """What says how one candidate is checked."""
    for option in (_sandbox, _python, _numerics, _target):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


def settings_for(path: Path | None, flags: dict[str, object] | None = None) -> Settings:
    """The settings for a command, with its warnings said."""
    settings, warnings = resolve(path, flags)
    for warning in warnings:
        say_warning(warning)
    return settings
