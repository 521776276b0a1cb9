"""The command `kernel-assistant doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_assistant.cli.common import json_option, settings_for
from kernel_assistant.cli.remote import host_options, there
from kernel_assistant.cli.text import styled
from kernel_assistant.errors import EXIT_MISSING, EXIT_OK
from kernel_assistant.records import encode, to_builtins
from kernel_assistant.session.doctor import Diagnosis, examine


@click.command("doctor")
@host_options
@json_option
@click.option("--python", metavar="PATH", help="Interpreter to look at instead of the one found from here.")
def doctor_command(as_json: bool, **flags: object) -> int:
    """Say what was found, what is missing, what each lack costs and how to get it.

    Exit code 3 only if nothing can be optimized here.
    """
    here = Path.cwd()
    settings = settings_for(here, flags)
    if settings.host:
        with there(settings) as machine:
            diagnosis = machine.doctor()
    else:
        diagnosis = examine(settings, here)
    where = {"host": {"name": settings.host}} if settings.host else {}
    print(encode({**to_builtins(diagnosis), **where}).decode() if as_json else "\n".join(_lines(diagnosis)))
    return EXIT_OK if diagnosis.works else EXIT_MISSING


def _lines(diagnosis: Diagnosis) -> list[str]:
    width = max(len(finding.name) for finding in diagnosis.findings)
    lines = []
    for finding in diagnosis.findings:
        mark = styled("ok     ", fg="green") if finding.ok else styled("missing", fg="yellow")
        lines.append(f"{mark}  {finding.name.ljust(width)}  {finding.found}")
        indent = " " * (11 + width)
        if finding.cost:
            lines.append(f"{indent}cost: {finding.cost}")
        if finding.next_step and not finding.ok:
            lines.append(f"{indent}next: {finding.next_step}")
    return [*lines, "", _conclusion(diagnosis)]


def _conclusion(diagnosis: Diagnosis) -> str:
    if not diagnosis.works:
        return "Nothing can be optimized here until what is missing above is there."
    return "Ready. Begin with: kernel-assistant optimize FILE[:CLASS]"
