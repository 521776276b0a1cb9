"""Fills inductor's cache folder with the code that torch.compile generates for a module, so that another process
compiles it faster."""

from __future__ import annotations

from typing import Any

import torch

from ..user_module.inputs import declared_inputs
from ..user_module.loading import build, load_module


def compile_ahead(task: dict[str, Any], device: str) -> None:
    """Calls the module of a task under torch.compile, as the judge's baseline is called. Raises what the module or the
    compiler raises."""
    module = load_module(task)
    model = build(module, task, device)
    args, kwargs = declared_inputs(module, task, model.forward, 0, task["seed"], device)
    with torch.no_grad():
        torch.compile(model)(*args, **kwargs)
