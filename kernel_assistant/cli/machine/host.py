"""The commands `kernel-assistant host status|stop`."""

from __future__ import annotations

import json

import click

from kernel_assistant.cli.common import json_option, settings_for
from kernel_assistant.cli.remote import host_client, host_options
from kernel_assistant.errors import EXIT_OK
from kernel_assistant.session.reporting.words import ago


@click.group("host")
def host_command() -> None:
    """The process that owns jobs, workers and the store. It starts with the first job and ends itself when idle."""


@host_command.command("status")
@host_options
@json_option
def status_command(as_json: bool, **flags: object) -> int:
    """Say whether a session host runs, and what it does."""
    with host_client(settings_for(None, flags)) as client:
        status = client.status()
    if as_json:
        print(json.dumps(status))
    elif status is None:
        print("no session host runs; the next job starts one")
    else:
        print(f"pid {status['pid']}, version {status['version']}, since {ago(status['started'])}: {_jobs(status)}")
    return EXIT_OK


@host_command.command("stop")
@host_options
def stop_command(**flags: object) -> int:
    """Cancel all jobs and end the session host, whatever version it is of."""
    with host_client(settings_for(None, flags)) as client:
        stopped = client.shutdown()
    print("stopped" if stopped else "no session host runs")
    return EXIT_OK


def _jobs(status: dict[str, object]) -> str:
    active = status["active_jobs"]
    return "idle" if not active else f"{active} job{'s' if active != 1 else ''}"
