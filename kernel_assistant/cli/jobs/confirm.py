"""The command `kernel-assistant confirm JOB|FILE[:CLASS]`."""

from __future__ import annotations

import click

from kernel_assistant.cli.common import json_option, settings_for
from kernel_assistant.cli.conclude import conclude, failure_as_json
from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.cli.watch import watch
from kernel_assistant.session.client import Client
from kernel_assistant.session.kinds.again import find_unconfirmed, prepare_confirm
from kernel_assistant.store import Store


@click.command("confirm")
@click.argument("what", metavar="[JOB|FILE[:CLASS]]", default="last")
@json_option
def confirm_command(what: str, as_json: bool) -> int:
    """Verify and measure in full what a job found: one that was cancelled, or whose gain was not clear.

    JOB is a number or `last`; of FILE it is the newest job whose gain is not known. Nothing is searched for. A gain
    that is confirmed can be applied.
    """
    settings = settings_for(None)
    store = Store(settings.state_dir)
    task, options = prepare_confirm(store, find_unconfirmed(store, what))
    client = Client(settings)
    job = str(client.submit(task, options)["job"])
    progress = choose_progress(f"job {job}: {task.name}", silent=as_json)
    with failure_as_json(job, task.name, task.target, as_json=as_json):
        result = watch(client, client.attach(job), progress, cancel_on_interrupt=True)
    return conclude(result, as_json=as_json)
