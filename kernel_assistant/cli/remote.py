"""`--host`: commands for jobs on a remote machine."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kernel_assistant.cli.conclude import conclude, failure_as_json
from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.cli.text import say_warning
from kernel_assistant.cli.watch import watch
from kernel_assistant.config import Settings
from kernel_assistant.errors import EXIT_CANCELLED, EXIT_OK, KernelAssistantError
from kernel_assistant.records import KernelTask
from kernel_assistant.session.client import Client
from kernel_assistant.store import JobOptions, JobRow

if TYPE_CHECKING:
    from kernel_assistant.remote.machine import PreparedJob, RemoteMachine
    from kernel_assistant.remote.results import FetchedJob

F = TypeVar("F", bound=Callable[..., Any])

_host = click.option("--host", metavar="MACHINE", help="Machine to work on, as ssh names it (none: here).")
_dir = click.option("--remote-dir", metavar="DIR", help="Folder of everything of ours on that machine.")
_python = click.option("--remote-python", metavar="PATH", help="Interpreter with torch on that machine.")


def host_options(command: F) -> F:
    """Adds the options that name a remote machine to a command."""
    return _host(_python(_dir(command)))


@contextmanager
def there(settings: Settings) -> Iterator[RemoteMachine]:
    """Connects to the machine that `settings.host` names. Errors raised inside the context get the machine's name."""
    from kernel_assistant.remote.machine import RemoteMachine
    from kernel_assistant.remote.told import told

    machine: RemoteMachine | None = None
    try:
        machine = RemoteMachine(settings)
        yield machine
    except KernelAssistantError as error:
        raise told(error, settings, lost=machine is not None and machine.client.lost()) from error


def jobs_of(settings: Settings) -> list[JobRow]:
    """The jobs of the session host, local or remote. Paths in the rows are those of this machine."""
    with host_client(settings) as client:
        rows = client.jobs()
    if not settings.host:
        return rows
    from kernel_assistant.remote.results import as_here

    return [as_here(row) for row in rows]


@contextmanager
def host_client(settings: Settings) -> Iterator[Client]:
    """A client of the session host, local or remote."""
    if not settings.host:
        yield Client(settings)
        return
    with there(settings) as machine:
        yield machine.client


def optimize_there(
    task: KernelTask,
    options: JobOptions,
    settings: Settings,
    *,
    as_json: bool,
    fail_under: float | None,
    detach: bool,
) -> int:
    """Runs `optimize` on the machine of the setting `host` and returns the exit code. `chosen_task` makes `task` and
    `options`. With `detach` it returns once the job is submitted."""
    from kernel_assistant.remote.closure import find_closure
    from kernel_assistant.remote.results import fetch, keep
    from kernel_assistant.remote.told import flags

    closure = find_closure(task, settings.ship)
    for name in closure.left_out:
        say_warning(f"{name} is not shipped: it looks like a secret")
    with there(settings) as machine:
        prepared = machine.prepare(task, options, closure)
        _say_what_went(machine, prepared, silent=as_json)
        submitted = machine.client.submit(prepared.task, prepared.options)
        job = str(submitted["job"])
        host = _document(machine, job, prepared)
        if detach:
            words = f"job {job} on {machine.name}; watch it with: kernel-assistant attach {job} {flags(settings)}"
            print(json.dumps({"job": job, "host": host}) if as_json else words)
            return EXIT_OK
        if submitted["joined"] or submitted["resumed"]:
            say_warning(f"job {job} on {machine.name} is at it already; going on with that one")
        progress = choose_progress(f"job {job} on {machine.name}: {task.name}", silent=as_json)
        with failure_as_json(job, task.name, task.target, as_json=as_json):
            watch(machine.client, machine.client.attach(job), progress, cancel_on_interrupt=True)
        fetched = fetch(machine, job)
    return conclude(keep(fetched, settings), as_json=as_json, fail_under=fail_under, host=host)


def attach_there(job: str, settings: Settings, *, as_json: bool) -> int:
    """Runs `attach` with `--host` and returns the exit code."""
    from kernel_assistant.remote.results import fetch, keep
    from kernel_assistant.remote.told import flags

    with there(settings) as machine:
        stream = machine.client.attach(job)
        progress = choose_progress(f"job {stream.job} on {machine.name}", silent=as_json)
        try:
            watch(machine.client, stream, progress, cancel_on_interrupt=False)
        except KeyboardInterrupt:
            stop = f"kernel-assistant cancel {stream.job} {flags(settings)}"
            print(f"job {stream.job} on {machine.name} goes on; stop it with: {stop}", file=sys.stderr)
            return EXIT_CANCELLED
        fetched = fetch(machine, stream.job)
        host = _document(machine, stream.job)
    return conclude(keep(fetched, settings), as_json=as_json, host=host)


@contextmanager
def fetched_from(settings: Settings, job: str, folder: Path) -> Iterator[FetchedJob]:
    """Fetches `job` from the remote machine. The files of its result are written to `folder`."""
    import msgspec

    from kernel_assistant.remote.results import as_here, fetch, localized

    with there(settings) as machine:
        fetched = fetch(machine, job)
    result = localized(fetched, folder, fetched.row.id)
    row = msgspec.structs.replace(as_here(fetched.row), result=result)
    yield dataclasses.replace(fetched, row=row)


def _say_what_went(machine: RemoteMachine, prepared: PreparedJob, *, silent: bool) -> None:
    if silent:
        return
    tool = [f"this tool ({_size(machine.installed.sent_bytes)})"] if machine.installed.sent_bytes else []
    count = prepared.shipped.files
    files = [f"{count} file{'s' if count != 1 else ''} ({_size(prepared.shipped.bytes)})"] if count else []
    print(f"{machine.name}: {' and '.join(tool + files) or 'nothing'} shipped; {prepared.device}", file=sys.stderr)


def _document(machine: RemoteMachine, job: str, prepared: PreparedJob | None = None) -> dict[str, object]:
    """The part of the `--json` output about the remote machine."""
    shipped = prepared.shipped if prepared else None
    return {
        "name": machine.name,
        "folder": machine.installed.folder,
        "job": job,
        "tool_bytes": machine.installed.sent_bytes,
        "files": shipped.files if shipped else 0,
        "bytes": shipped.bytes if shipped else 0,
    }


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
