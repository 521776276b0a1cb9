"""The jobs of a scanned class: one for each of its configurations, each with its part of the budget."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import msgspec

from kernel_assistant.cli.progress import choose_progress
from kernel_assistant.cli.text import say_warning
from kernel_assistant.cli.watch import watch
from kernel_assistant.config import Settings
from kernel_assistant.errors import Cancelled, KernelAssistantError
from kernel_assistant.records import JobOutcome
from kernel_assistant.records.scan import Scan, ScannedClass
from kernel_assistant.session.client import Client
from kernel_assistant.session.prepare import prepare_scanned
from kernel_assistant.session.reporting.report import read_evaluation
from kernel_assistant.session.scanning.budgets import LEAST_SECONDS, divided
from kernel_assistant.session.scanning.program_gain import ClassGain, ConfigurationGain


@dataclass(frozen=True)
class QueuedClass:
    """A class and its queued jobs; their results are still missing."""

    row: ScannedClass
    parts: tuple[ConfigurationGain, ...]

    @property
    def jobs(self) -> list[str]:
        return [part.job for part in self.parts]


def queue_class(client: Client, scan: Scan, row: ScannedClass, settings: Settings) -> QueuedClass:
    """Submit a job for each configuration. Free wins are measured for the first one only."""
    budgets = divided(settings.budget, [one.seconds for one in row.configurations])
    if min(budgets) < LEAST_SECONDS:
        say_warning(
            f"{row.name} has {len(budgets)} configurations, which get {min(budgets):.1f} s or more each; "
            f"--budget {LEAST_SECONDS * len(budgets):.0f}s gives each {LEAST_SECONDS:.0f} s"
        )
    parts = []
    for number, (configuration, budget) in enumerate(zip(row.configurations, budgets, strict=True), start=1):
        own = dataclasses.replace(settings, budget=budget)
        task, options = prepare_scanned(f"{scan.id}:{row.key}#{number}", own)
        options = msgspec.structs.replace(options, free_wins=settings.free_wins and number == 1)
        job = str(client.submit(task, options)["job"])
        parts.append(ConfigurationGain(number, configuration, job))
    return QueuedClass(row, tuple(parts))


def watch_classes(client: Client, queued: list[QueuedClass], *, silent: bool, words: bool) -> list[ClassGain] | None:
    """Watch all jobs, one after another. None if the user cancelled one; those that had not begun are cancelled too."""
    waiting = [job for one in queued for job in one.jobs]
    gains = []
    for one in queued:
        parts = []
        for part in one.parts:
            waiting.remove(part.job)
            name = one.row.name if len(one.parts) == 1 else f"{one.row.name}#{part.number}"
            try:
                parts.append(_watched(client, name, part, silent=silent, words=words))
            except Cancelled:
                _cancel(client, waiting)
                raise
            result = parts[-1].result
            if result is not None and result.outcome is JobOutcome.cancelled:
                _cancel(client, waiting)
                return None
        gains.append(ClassGain(one.row, tuple(parts)))
    return gains


def as_document(part: ConfigurationGain) -> dict[str, Any]:
    """The result of one configuration, for `--json`."""
    best = part.result.best if part.result is not None else None
    return {
        "number": part.number,
        "job": part.job,
        "calls": part.configuration.calls,
        "served_calls": part.served_calls,
        "seconds": part.configuration.seconds,
        "inputs": [sample.text for sample in part.configuration.samples],
        "outcome": outcome_word(part, separator="_"),
        "applicable": part.applicable,
        "speedup_vs_eager": None if best is None else best.speedup_vs_eager,
        "speedup_vs_compile": None if best is None else best.speedup_vs_compile,
        "failure": "" if part.failure is None else part.failure.cause,
    }


def outcome_word(part: ConfigurationGain, *, separator: str = " ") -> str:
    return "failed" if part.result is None else part.result.outcome.value.replace("_", separator)


def _cancel(client: Client, jobs: list[str]) -> None:
    for job in jobs:
        client.cancel(job)


def _watched(client: Client, name: str, part: ConfigurationGain, *, silent: bool, words: bool) -> ConfigurationGain:
    """The part with its result. If the job fails, `failure` says why, and the other jobs go on."""
    progress = choose_progress(f"job {part.job}: {name}", silent=silent, words=words)
    try:
        result = watch(client, client.attach(part.job), progress, cancel_on_interrupt=True)
        evaluation = read_evaluation(result)
        all_sizes = evaluation is None or evaluation.sizes == "all"
        return dataclasses.replace(part, result=result, all_sizes=all_sizes)
    except Cancelled:
        raise
    except KernelAssistantError as error:
        say_warning(f"{name}: {error.cause}; {error.next_step}")
        return dataclasses.replace(part, failure=error)
