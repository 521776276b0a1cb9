"""Tries guessed inputs: imports, builds and calls a class once for each guess, until one works."""

from __future__ import annotations

import os
from typing import Any

import torch

from ..process.worker_errors import TaskError, user_code
from ..user_module.inputs import declared_inputs
from ..user_module.loading import build, load_module
from . import task_checks as checks


def try_inputs(tasks: list[dict[str, Any]], device: str) -> dict[str, Any]:
    """Returns `{"runs": index, "problem": text}`: the index of the first task that runs, or -1 with the error of the
    first task if none does.

    `tasks` (KernelTasks as builtins) differ only in how they declare their inputs.
    """
    problem = ""
    for index, task in enumerate(tasks):
        try:
            _call_once(task, device)
        except TaskError as error:
            problem = problem or error.message
            if error.kind in ("import_failed", "no_class"):
                break
        else:
            return {"runs": index, "problem": ""}
    return {"runs": -1, "problem": problem}


def _call_once(task: dict[str, Any], device: str) -> None:
    module = load_module(task)
    model = build(module, task, device)
    args, kwargs = declared_inputs(module, task, model.forward, 0, task["seed"], device)
    checks.check_signature(model, args, kwargs)
    what = f"calling {task['class_name']} of {os.path.basename(task['path'])}"
    with user_code("forward_failed", what, "mend the inputs", task["path"]), torch.no_grad():
        model(*args, **kwargs)
