"""Whether an action makes sense now, and why not. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.records import JobOutcome
from kernel_assistant_tui.actions import Action
from kernel_assistant_tui.jobs import OpenJob
from kernel_assistant_tui.project.module import Module

#: Outcomes of jobs that leave a candidate.
_WITH_KERNELS = (JobOutcome.improved.value, JobOutcome.no_measurable_gain.value)
_WHY_NOT = {
    "module": "no class is chosen",
    "job": "no job is shown; start one, or open one from history",
    "running": "no job is running here",
    "interrupted": "no interrupted job is shown",
    "kernels": "there are no kernels yet; start a job, or open one from history",
    "applied": "no kernels are applied to this class",
    "tabs": "no other job is open",
}


@dataclass(frozen=True)
class Situation:
    """`module` is chosen in the list, `subject` is the class that an action is about; `others` says whether there are
    tabs beside the one that is shown."""

    module: Module | None
    subject: Module | None
    job: OpenJob | None
    scanning: bool
    others: bool


def why_not(action: Action, now: Situation) -> str:
    """One line; "" for what can be done."""
    return "" if not action.needs or _is_there(action, now) else f"{action.label}: {_WHY_NOT[action.needs]}"


def _is_there(action: Action, now: Situation) -> bool:
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
                module is not None and module.state.outcome in _WITH_KERNELS
            )
        case "applied":
            return now.subject is not None and now.subject.state.applied
    return now.others
