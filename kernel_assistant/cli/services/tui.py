"""`kernel-assistant tui`: modules, jobs and devices on one screen."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from kernel_assistant.cli.common import run_options
from kernel_assistant.cli.remote import host_options


@click.command("tui")
@click.argument("path", required=False, default=".", type=click.Path(path_type=Path))
@run_options
@host_options
def tui_command(path: Path, **flags: object) -> int:
    """Show PATH (a folder or a file, default: this folder): its modules, running jobs, results and devices.

    Jobs run in the session host: leaving does not end them, and a second terminal finds them. `?` lists the keys.
    """
    # By name: front ends are above the command line's layer and not of its package.
    code: int = importlib.import_module("kernel_assistant_tui.main").run(path, flags)
    return code
