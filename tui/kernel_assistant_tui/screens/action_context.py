"""Decides whether an action is possible now, and says why not. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.records import JobOutcome
from kernel_assistant_tui.actions import Action
from kernel_assistant_tui.jobs import OpenJob
from kernel_assistant_tui.project.module import Module

#: Outcomes of jobs that leave a candidate.
_WITH_KERNELS = (JobOutcome.improved.value, JobOutcome.no_measurable_gain.value, JobOutcome.inconclusive.value)
_WHY_NOT = {
    "module": "no class is chosen",
    "job": "no job is shown; start one, or open one from history",
    "running": "no job is running here",
    "interrupted": "no interrupted job is shown",
    "kernels": "there are no kernels yet; start a job, or open one from history",
    "unconfirmed": "no job here kept a candidate whose gain is not known",
    "applied": "no kernels are applied to this class",
    "tabs": "no other job is open",
}


@dataclass(frozen=True)
class ActionContext:
    """The state that decides which actions are possible. `module` is the class chosen in the list, `subject` the class
    to which an action applies, `job` the job of the current tab. `scanning` says whether a scan runs, `others` whether
    there are tabs besides the current one."""

    module: Module | None
    subject: Module | None
    job: OpenJob | None
    scanning: bool
    others: bool


def why_not(action: Action, now: ActionContext) -> str:
    """Return one line that says why an action is not possible, "" if it is possible."""
    return "" if not action.needs or _is_there(action, now) else f"{action.label}: {_WHY_NOT[action.needs]}"


def _is_there(action: Action, now: ActionContext) -> bool:
    job, module = now.job, now.module
    match action.needs:
        case "module":
            return module is not None
        case "job":
            return job is not None
        case "running":
            return (action.name == "cancel" and now.scanning) or (job is not None and job.running)
        case "interrupted":
            return job is not None and job.interrupted
        case "kernels":
            return (job is not None and job.has_kernels) or (
                module is not None and (module.state.outcome in _WITH_KERNELS or bool(module.state.offer))
            )
        case "unconfirmed":
            return (job is not None and job.is_unconfirmed and bool(job.number)) or (
                now.subject is not None and bool(now.subject.state.unconfirmed)
            )
        case "applied":
            return now.subject is not None and now.subject.state.applied
    return now.others
