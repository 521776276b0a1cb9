"""The command `kernel-assistant optimize FILE[:CLASS]`."""

from __future__ import annotations

import json
from pathlib import Path

import click
import msgspec

from kernel_assistant.cli.common import json_option, run_options, settings_for
from kernel_assistant.cli.conclude import conclude, failure_as_json
from kernel_assistant.cli.modules.inputs import chosen_task, input_options
from kernel_assistant.cli.modules.optimize_class import optimize_class
from kernel_assistant.cli.modules.optimize_top import optimize_top
from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.cli.remote import host_options, optimize_there
from kernel_assistant.cli.text import say_warning
from kernel_assistant.cli.watch import watch
from kernel_assistant.errors import EXIT_OK, UsageError
from kernel_assistant.session.client import Client
from kernel_assistant.session.scanning.recorded import class_of_task


@click.command("optimize")
@input_options
@run_options
@host_options
@json_option
@click.option("--endpoint", metavar="URL", help="OpenAI-compatible server whose model plays (or a registered name).")
@click.option("--model", metavar="NAME", help="Model that plays: see `models list`; with --endpoint its name there.")
@click.option("--episodes", type=int, metavar="N", help="Conversations at once; the best of all counts (default: 1).")
@click.option("--tokens", type=int, metavar="N", help="Tokens that a model may write in one conversation.")
@click.option("--money", metavar="AMOUNT", help="Money for the requests of a job, in the currency of the price.")
@click.option(
    "--fail-under", type=float, metavar="X", help="Gate: exit code 1 unless X times as fast as torch.compile."
)
@click.option(
    "--detach",
    is_flag=True,
    default=None,
    help="Start alone: its number is printed, and the session host runs the job.",
)
@click.option("--free-wins/--no-free-wins", default=None, help="Gains without a kernel, measured too (default: yes).")
@click.option(
    "--top", type=click.IntRange(min=1), metavar="N", help="Classes of --scan ID that are worth most, instead of one."
)
@click.option("-v", "--verbose", is_flag=True, help="Words and calls of a model too, line by line.")
def optimize_command(
    file: str,
    scan: str | None,
    as_json: bool,
    top: int | None,
    verbose: bool,
    **flags: object,
) -> int:
    """Have kernels written for a module until they beat torch.compile or the budget is spent.

    The module's inputs come from get_inputs(), a comment above the class, or pyproject.toml, else from the last scan of
    a program that used the class. Each configuration of the class that the scan saw gets a job with its part of the
    budget. Ctrl-C stops the job and keeps the best so far.
    """
    settings = settings_for(Path(file or "."), flags)
    if settings.sandbox == "none":
        say_warning("--sandbox none: generated code runs with all your rights and could read or delete your files")
    if top is not None:
        if not scan or file:
            raise UsageError("--top is for a scan", "kernel-assistant optimize --scan last --top 3")
        return optimize_top(scan, top, settings, as_json=as_json, words=verbose)
    task, options = chosen_task(file, scan, settings.inputs, settings)
    scanned_class = None if "#" in (scan or "") else class_of_task(task, settings.state_dir)
    if scanned_class is not None and len(scanned_class.row.configurations) > 1:
        if not settings.host:
            return optimize_class(scanned_class, settings, as_json=as_json, words=verbose)
        say_warning(
            f"--host takes {scanned_class.row.name}#1 alone; the others: "
            f"--scan {scanned_class.scan.id}:{scanned_class.row.name}#2, …"
        )
    options = msgspec.structs.replace(options, free_wins=settings.free_wins)
    fail_under, detach = settings.fail_under, settings.detach
    if settings.host:
        return optimize_there(task, options, settings, as_json=as_json, fail_under=fail_under, detach=detach)
    client = Client(settings)
    submitted = client.submit(task, options)
    job = str(submitted["job"])
    if detach:
        print(json.dumps({"job": job}) if as_json else f"job {job}; watch it with: kernel-assistant attach {job}")
        return EXIT_OK
    _say_what_it_is(submitted, silent=as_json)
    stream = client.attach(job)
    progress = choose_progress(f"job {job}: {task.name}", silent=as_json, words=verbose)
    with failure_as_json(job, task.name, task.target, as_json=as_json):
        result = watch(client, stream, progress, cancel_on_interrupt=True)
    return conclude(result, as_json=as_json, fail_under=fail_under)


def _say_what_it_is(submitted: dict[str, object], *, silent: bool) -> None:
    if silent:
        return
    if submitted["joined"]:
        say_warning(f"job {submitted['job']} is at it already; watching that one")
    if submitted["resumed"]:
        say_warning(f"job {submitted['job']} was interrupted; going on with it")
