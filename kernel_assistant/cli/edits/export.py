"""The command `kernel-assistant export JOB --to FORM DIR`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kernel_assistant.apply import KINDS
from kernel_assistant.cli.common import json_option, open_store, settings_for
from kernel_assistant.cli.text import say_warning
from kernel_assistant.errors import EXIT_OK
from kernel_assistant.session.edits import export_job, find_job


@click.command("export")
@click.argument("what", metavar="JOB|FILE[:CLASS]")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--to", "kind", type=click.Choice(KINDS), required=True, help="Form of the kernels.")
@json_option
def export_command(what: str, folder: Path, kind: str, as_json: bool) -> int:
    """Write the kernels of JOB (a number or `last`), or of the newest improved job of FILE, into the new folder DIR.

    kernelbench: one file with ModelNew and its kernels inline, and the reference; cuda-agent: a workdir of kernels,
    bindings and ModelNew; package: a Python package that pip installs. None of them needs this tool.
    """
    store = open_store(settings_for(None))
    row = find_job(store, what)
    exported = export_job(row, kind, folder.absolute())
    for warning in exported.warnings:
        say_warning(f"verify would refuse it: {warning}")
    if as_json:
        files = [str(path) for path in exported.files]
        print(json.dumps({"job": row.id, "form": kind, "files": files, "warnings": list(exported.warnings)}))
        return EXIT_OK
    print(f"{row.task.class_name} is in {exported.files[0]} ({len(exported.files)} files)")
    return EXIT_OK
