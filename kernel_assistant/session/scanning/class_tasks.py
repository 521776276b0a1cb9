"""Prepares the jobs of a scanned class: one job for each configuration (a module with its kind of inputs), each with
its share of the time budget and of the money."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import msgspec

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records import KernelTask, OptimizeResult
from kernel_assistant.records.scan import Scan, ScannedClass, ScannedConfiguration
from kernel_assistant.session.prepare import prepare_scanned
from kernel_assistant.session.reporting.report import read_evaluation
from kernel_assistant.session.scanning.budgets import divided
from kernel_assistant.session.scanning.program_gain import ConfigurationGain
from kernel_assistant.store import JobOptions


@dataclass(frozen=True)
class ConfigurationTask:
    """The job of one configuration, `CLASS#number`, before it is submitted."""

    number: int
    configuration: ScannedConfiguration
    task: KernelTask
    options: JobOptions

    def gain(
        self, job: str, result: OptimizeResult | None = None, failure: KernelAssistantError | None = None
    ) -> ConfigurationGain:
        evaluation = None if result is None else read_evaluation(result)
        all_sizes = evaluation is None or evaluation.sizes == "all"
        return ConfigurationGain(self.number, self.configuration, job, result, failure, all_sizes)


def class_tasks(scan: Scan, row: ScannedClass, settings: Settings) -> list[ConfigurationTask]:
    """Returns the job of each configuration of the class `row`. Free wins are measured for the first configuration
    only. Raises as `prepare` does."""
    tasks = []
    budgets = divided(settings.budget, [one.seconds for one in row.configurations])
    for number, (configuration, budget) in enumerate(zip(row.configurations, budgets, strict=True), start=1):
        money = None if settings.money is None else settings.money * budget / settings.budget
        own = dataclasses.replace(settings, budget=budget, money=money)
        task, options = prepare_scanned(f"{scan.id}:{row.key}#{number}", own)
        options = msgspec.structs.replace(options, free_wins=settings.free_wins and number == 1)
        tasks.append(ConfigurationTask(number, configuration, task, options))
    return tasks


def as_document(part: ConfigurationGain) -> dict[str, Any]:
    """Returns the result of one configuration's job as a dict for JSON; speed-ups are None if no candidate was
    confirmed."""
    best = part.result.best if part.result is not None else None
    return {
        "number": part.number,
        "job": part.job,
        "calls": part.configuration.calls,
        "served_calls": part.served_calls,
        "seconds": part.configuration.seconds,
        "inputs": [sample.text for sample in part.configuration.samples],
        "outcome": "failed" if part.result is None else part.result.outcome.value,
        "applicable": part.applicable,
        "speedup_vs_eager": None if best is None else best.speedup_vs_eager,
        "speedup_vs_compile": None if best is None else best.speedup_vs_compile,
        "failure": "" if part.failure is None else part.failure.cause,
    }
