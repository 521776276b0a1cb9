"""Drafts declarations of a class's inputs. Tries each draft: imports the file, constructs the class and calls it."""

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
    """A draft. `problem` says in one line why the class does not run with it; "" if the class runs."""

    draft: Draft
    problem: str


def draft_that_runs(spec: str, settings: Settings, text: str) -> TriedDraft:
    """Returns the first draft for the class `FILE:CLASS` with which the class runs, on the CPU under the user's
    interpreter; if no draft runs, the likeliest draft. `text` is the text of the file.

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
    """Returns the index of the first task that runs, and ""; if no task runs, returns 0 and the reason. Raises as
    `WorkerClient.start` and `WorkerClient.call` do."""
    worker = WorkerClient(python, template_seconds=_IDLE_SECONDS)
    try:
        worker.start()
        params = {"tasks": [to_builtins(task) for task in tasks]}
        answer = worker.call("try_inputs", params, timeout=_MOST_SECONDS)
    finally:
        worker.kill()
    return max(0, int(answer["runs"])), str(answer["problem"])
