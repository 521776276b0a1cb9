"""Drafts the comment that declares the inputs of a class. Tries each draft: imports the file, constructs the class and
calls it."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.config import Settings
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records import KernelTask
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.source.build import build_task
from kernel_assistant.source.draft import Draft, drafts, with_draft
from kernel_assistant.source.interpreter import find_interpreter

#: Time limit. Most of it is for importing the file.
_MOST_SECONDS = 90.0
#: The template process is kept this long, for the job that may follow.
_IDLE_SECONDS = 60.0


@dataclass(frozen=True)
class TriedDraft:
    """A drafted declaration of inputs. `problem` says in one line why the class does not run with it; "" if the class
    runs."""

    draft: Draft
    problem: str


def draft_that_runs(spec: str, settings: Settings, text: str) -> TriedDraft:
    """Drafts declarations of inputs for the class `FILE:CLASS` and returns the first one with which the class runs, on
    the CPU under the user's interpreter; if none runs, the likeliest. `text` is the text of the file.

    Takes seconds. If jobs run on a remote machine, no draft is tried. Raises UsageError if the class does not exist.
    """
    candidates = drafts(spec, text)
    if settings.host:
        return TriedDraft(candidates[0], f"it was not run here, where jobs run on {settings.host}")
    try:
        tasks = [_task(spec, settings, text, one) for one in candidates]
        index, problem = _first(tasks, find_interpreter(tasks[0].path, settings.python or None).path)
    except KernelAssistantError as error:
        index, problem = 0, error.cause
    return TriedDraft(candidates[index], problem)


def _task(spec: str, settings: Settings, text: str, drafted: Draft) -> KernelTask:
    content = with_draft(text, drafted.class_name, drafted.text)
    return build_task(spec, target="cpu", numerics=settings.numerics, text=content)


def _first(tasks: list[KernelTask], python: str) -> tuple[int, str]:
    """Returns (index, "") of the first task that runs; if no task runs, (0, reason). Raises as `WorkerClient.start` and
    `WorkerClient.call` do."""
    worker = WorkerClient(python, template_seconds=_IDLE_SECONDS)
    try:
        worker.start()
        params = {"tasks": [to_builtins(task) for task in tasks]}
        answer = worker.call("try_inputs", params, timeout=_MOST_SECONDS)
    finally:
        worker.kill()
    return max(0, int(answer["runs"])), str(answer["problem"])
