"""Describes which calls of a scanned program will run the original although kernels are applied to their class."""

from __future__ import annotations

import json
from collections.abc import Iterable

from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask
from kernel_assistant.records.scan import ScannedConfiguration
from kernel_assistant.session.scanning.recorded import class_of_task, recorded_calls
from kernel_assistant.store import JobRow, Store

#: What identifies a configuration: the folder of its recording, and the arguments that its task takes from there.
Identity = tuple[str, ...]


def configuration_of(task: KernelTask) -> Identity:
    """Returns a value that identifies the task's configuration (a module with its kind of inputs): the folder of its
    recording, and the recorded arguments of its workloads."""
    return (task.recording, *(workload.args for workload in task.workloads))


def left_to_original(store: Store, rows: Iterable[JobRow]) -> str:
    """Returns a message for users about the configurations (kinds of module and inputs) of a class that still run the
    original after the jobs `rows` of this class are applied. Returns "" if every configuration has kernels, or if the
    inputs are not recorded."""
    jobs = list(rows)
    scanned_class = class_of_task(jobs[0].task, store.state_dir)
    if scanned_class is None:
        return ""
    served = {configuration_of(row.task) for row in (*jobs, *_applied(store, jobs[0]))}
    missing = [one for one in scanned_class.row.configurations if _identity(one) not in served]
    if not missing:
        return ""
    calls = sum(one.calls for one in missing)
    share = f", {calls} of {scanned_class.row.calls} calls" if calls else ""
    spec = scanned_class.scan.spec(scanned_class.row)
    return (
        f"{len(missing)} of {len(scanned_class.row.configurations)} configurations of "
        f"{scanned_class.row.name} in scan {scanned_class.scan.id} have no applied job{share}: "
        f"kernel-assistant optimize --scan {spec}, then apply {spec}"
    )


def _identity(one: ScannedConfiguration) -> Identity:
    return (one.folder, *(args for args, _ in map(recorded_calls, one.samples)))


def _applied(store: Store, row: JobRow) -> list[JobRow]:
    """Returns the jobs whose kernels are now applied to the class of `row`."""
    rows = []
    for edit in store.edits():
        if json.loads(edit.document)["class"] == row.task.class_name:
            try:
                rows.append(store.job(edit.job))
            except UsageError:
                continue  # the history was rebuilt without it
    return [one for one in rows if one.task.path == row.task.path]
