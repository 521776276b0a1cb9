"""Options and functions that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kernel_assistant.cli.text import say_warning
from kernel_assistant.config import NUMERICS, POLICIES, SANDBOXES, TARGETS, Settings, resolve

if TYPE_CHECKING:
    from kernel_assistant.store import Store

F = TypeVar("F", bound=Callable[..., Any])

_target = click.option("--target", type=click.Choice(TARGETS), help="Device kind (default: a GPU where there is one).")
_policy = click.option("--policy", type=click.Choice(POLICIES), help="Policy that writes the kernels.")
_budget = click.option("--budget", metavar="TIME", help="Time of the whole job, such as 120s or 2m.")
_numerics = click.option(
    "--numerics", type=click.Choice(NUMERICS), help="Distance from float64 that a result may have."
)
_python = click.option("--python", metavar="PATH", help="Interpreter with torch (default: found from the project).")
_sandbox = click.option(
    "--sandbox",
    type=click.Choice(SANDBOXES),
    help="Sandbox of generated code; none: it runs with your rights, unprotected.",
)


def run_options(command: F) -> F:
    """Adds the options that say how a job runs to a command."""
    for option in (_sandbox, _python, _numerics, _budget, _policy, _target):
        command = option(command)
    return command


def check_options(command: F) -> F:
    """Adds the options that say how one candidate is checked to a command."""
    for option in (_sandbox, _python, _numerics, _target):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Output as one JSON object and nothing else.")


def open_store(settings: Settings) -> Store:
    """The store of earlier jobs. Prints a warning if the store was damaged. Raises StoreError."""
    from kernel_assistant.store import Store

    store = Store(settings.state_dir)
    for line in store.news():
        say_warning(line)
    return store


def settings_for(path: Path | None, flags: dict[str, object] | None = None) -> Settings:
    """The settings for a command that works on `path`. Prints a warning for each setting that is ignored."""
    settings, warnings = resolve(path, flags)
    for warning in warnings:
        say_warning(warning)
    return settings
