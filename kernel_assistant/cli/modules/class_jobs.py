"""Submits the jobs of a scanned class, and watches one after another."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.cli.text import say_warning
from kernel_assistant.cli.watch import watch
from kernel_assistant.config import Settings
from kernel_assistant.errors import Cancelled, KernelAssistantError
from kernel_assistant.records import JobOutcome
from kernel_assistant.records.scan import Scan, ScannedClass
from kernel_assistant.session.client import Client
from kernel_assistant.session.scanning.budgets import LEAST_SECONDS
from kernel_assistant.session.scanning.class_tasks import ConfigurationTask, class_tasks
from kernel_assistant.session.scanning.program_gain import ClassGain, ConfigurationGain


@dataclass(frozen=True)
class QueuedClass:
    """A scanned class, with the task and the job number of each of its configurations (instances and inputs of one
    kind)."""

    row: ScannedClass
    parts: tuple[tuple[ConfigurationTask, str], ...]

    @property
    def jobs(self) -> list[str]:
        return [job for _, job in self.parts]


def queue_class(client: Client, scan: Scan, row: ScannedClass, settings: Settings) -> QueuedClass:
    """Submit a job for each configuration of the class. Prints a warning if so many jobs make the budget too short."""
    tasks = class_tasks(scan, row, settings)
    least = min(one.options.budget for one in tasks)
    if least < LEAST_SECONDS and len(tasks) > 1:
        say_warning(
            f"{row.name} has {len(tasks)} configurations, which get {least:.1f} s or more each; "
            f"--budget {LEAST_SECONDS * len(tasks):.0f}s gives each {LEAST_SECONDS:.0f} s"
        )
    return QueuedClass(row, tuple((one, str(client.submit(one.task, one.options)["job"])) for one in tasks))


def watch_classes(client: Client, queued: list[QueuedClass], *, silent: bool, words: bool) -> list[ClassGain] | None:
    """Watches all jobs, one after another. Returns the gain of each class, in the order of `queued`; a job that fails
    is part of its class's gain. With `silent` only warnings are printed; otherwise the progress of each job is shown,
    with `words` including the text that a model writes.

    If the user cancels a job, the jobs that were not watched yet are cancelled, too, and the result is None. Raises
    Cancelled if the host does not report the end of the cancelled job in time."""
    waiting = [job for one in queued for job in one.jobs]
    gains = []
    for one in queued:
        parts = []
        for task, job in one.parts:
            waiting.remove(job)
            name = one.row.name if len(one.parts) == 1 else f"{one.row.name}#{task.number}"
            try:
                parts.append(_watched(client, name, task, job, silent=silent, words=words))
            except Cancelled:
                _cancel(client, waiting)
                raise
            result = parts[-1].result
            if result is not None and result.outcome is JobOutcome.cancelled:
                _cancel(client, waiting)
                return None
        gains.append(ClassGain(one.row, tuple(parts)))
    return gains


def outcome_word(part: ConfigurationGain) -> str:
    return "failed" if part.result is None else part.result.outcome.value.replace("_", " ")


def _cancel(client: Client, jobs: list[str]) -> None:
    for job in jobs:
        client.cancel(job)


def _watched(
    client: Client, name: str, task: ConfigurationTask, job: str, *, silent: bool, words: bool
) -> ConfigurationGain:
    """The gain of a job. If the job fails, the gain has the error as `failure`, which is not raised, so that other jobs
    go on."""
    progress = choose_progress(f"job {job}: {name}", silent=silent, words=words)
    try:
        return task.gain(job, watch(client, client.attach(job), progress, cancel_on_interrupt=True))
    except Cancelled:
        raise
    except KernelAssistantError as error:
        say_warning(f"{name}: {error.cause}; {error.next_step}")
        return task.gain(job, failure=error)
