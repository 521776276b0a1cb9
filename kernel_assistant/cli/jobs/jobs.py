"""The commands `jobs`, `attach`, `confirm`, `say`, `cancel` and `history`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from kernel_assistant.cli.common import json_option, open_store, settings_for
from kernel_assistant.cli.conclude import conclude, failure_as_json
from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.cli.remote import attach_there, host_client, host_options, jobs_of
from kernel_assistant.cli.text import table
from kernel_assistant.cli.watch import watch
from kernel_assistant.errors import EXIT_CANCELLED, EXIT_OK
from kernel_assistant.session.client import Client
from kernel_assistant.session.reporting.verdicts import outcome_with_figure
from kernel_assistant.session.reporting.words import ago
from kernel_assistant.store import JobRow, JobState, Store

_HEAD = ("job", "state", "module", "device", "when", "result")


@click.command("jobs")
@host_options
@json_option
@click.option("--all", "everything", is_flag=True, help="Ended jobs too.")
def jobs_command(as_json: bool, everything: bool, **flags: object) -> int:
    """List jobs that run, wait or were interrupted."""
    settings = settings_for(None, flags)
    rows = jobs_of(settings)
    if not everything:
        rows = [row for row in rows if row.state.active or row.state is JobState.interrupted]
    _print_rows(rows, as_json, "no job is running; kernel-assistant history lists the ended ones", settings.host)
    return EXIT_OK


@click.command("history")
@json_option
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Jobs at most.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
def history_command(as_json: bool, limit: int, file: Path | None) -> int:
    """List what was done (for FILE only, if one is named), newest first. Needs no session host."""
    rows = open_store(settings_for(None)).jobs(limit=limit if file is None else sys.maxsize)
    if file is not None:
        rows = [row for row in rows if row.task.path == str(file.absolute())][:limit]
    _print_rows(rows, as_json, "nothing yet; begin with: kernel-assistant optimize FILE")
    return EXIT_OK


@click.command("attach")
@click.argument("job")
@host_options
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Words and calls of a model too, line by line.")
def attach_command(job: str, as_json: bool, verbose: bool, **flags: object) -> int:
    """Watch JOB (a number or `last`) to its end. One that was interrupted goes on. Ctrl-C only stops watching."""
    settings = settings_for(None, flags)
    if settings.host:
        return attach_there(job, settings, as_json=as_json)
    client = Client(settings)
    stream = client.attach(job)
    progress = choose_progress(f"job {stream.job}", silent=as_json, words=verbose)
    task = open_store(settings).job(stream.job).task
    try:
        with failure_as_json(stream.job, task.name, task.target, as_json=as_json):
            result = watch(client, stream, progress, cancel_on_interrupt=False)
    except KeyboardInterrupt:
        print(f"job {stream.job} goes on; stop it with: kernel-assistant cancel {stream.job}", file=sys.stderr)
        return EXIT_CANCELLED
    return conclude(result, as_json=as_json)


@click.command("say")
@click.argument("job")
@click.argument("words", nargs=-1, required=True)
@host_options
def say_command(job: str, words: tuple[str, ...], **flags: object) -> int:
    """Tell the model that works on JOB (a number or `last`) something; it reads it at its next turn."""
    with host_client(settings_for(None, flags)) as client:
        client.say(job, " ".join(words))
    return EXIT_OK


@click.command("cancel")
@click.argument("job")
@host_options
def cancel_command(job: str, **flags: object) -> int:
    """Stop JOB (a number or `last`) and keep what it found."""
    with host_client(settings_for(None, flags)) as client:
        # By its number: another job may become the last one meanwhile.
        job = _number(client, job)
        state = client.cancel(job)
    words = {JobState.running: "is stopping", JobState.cancelled: "is cancelled"}
    print(f"job {job} {words.get(state, f'had ended: {state.value}')}")
    return EXIT_OK


def _number(client: Client, job: str) -> str:
    """The number of the last job if `job` is `last`; otherwise `job` unchanged."""
    numbers = [int(row.id) for row in client.jobs()] if job == "last" else []
    return str(max(numbers)) if numbers else job


def _print_rows(rows: list[JobRow], as_json: bool, nothing: str, host: str = "") -> None:
    if as_json:
        where: dict[str, object] = {"host": {"name": host}} if host else {}
        print(json.dumps([{**_summary(row), **where} for row in rows]))
    elif not rows:
        print(nothing)
    else:
        print("\n".join(table(_HEAD, [_cells(row) for row in rows])))


def _summary(row: JobRow) -> dict[str, object]:
    return {**row.summary(), "task": row.task.name, "path": row.task.path, "target": row.task.target}


def _cells(row: JobRow) -> tuple[str, ...]:
    when = ago(row.ended or row.started or row.created)
    kind = "" if row.options.kind.value == "optimize" else f"{row.options.kind.value} "
    return (row.id, row.state.value, f"{kind}{row.task.name}", row.device, when, _result(row))


def _result(row: JobRow) -> str:
    if row.error:
        return row.error
    if row.result is None:
        return ""
    return outcome_with_figure(row.result)


@click.command("confirm")
@click.argument("what", metavar="[JOB|FILE[:CLASS]]", default="last")
@json_option
def confirm_command(what: str, as_json: bool) -> int:
    """Verify and measure in full what a job found: one that was cancelled, or whose gain was not clear.

    JOB is a number or `last`; of FILE it is the newest job whose gain is not known. Nothing is searched for. A gain
    that is confirmed can be applied.
    """
    from kernel_assistant.session.kinds.again import find_unconfirmed, prepare_confirm

    settings = settings_for(None)
    store = Store(settings.state_dir)
    task, options = prepare_confirm(store, find_unconfirmed(store, what))
    client = Client(settings)
    job = str(client.submit(task, options)["job"])
    progress = choose_progress(f"job {job}: {task.name}", silent=as_json)
    with failure_as_json(job, task.name, task.target, as_json=as_json):
        result = watch(client, client.attach(job), progress, cancel_on_interrupt=True)
    return conclude(result, as_json=as_json)
