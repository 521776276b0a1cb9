"""The module with its kernels beside the module without, in one process."""

from __future__ import annotations

import os
import runpy
from typing import Any

import torch

from .loading import build, load_module
from .open_task import OpenTask


def with_kernels(opened: OpenTask, params: dict[str, Any], device: str) -> torch.nn.Module:
    """The class of the text `applied`, built like `opened.model` and with its weights.

    A class of an installed package is replaced from outside by the kernels in the folder `package`, as a program does
    it: files of packages cannot all be executed a second time, since some register what they define.
    """
    task = params["task"]
    if task.get("installed"):
        _keep_original(opened.model)
        runpy.run_path(os.path.join(params["package"], "load.py"))["replaced"](task["class_name"], task["module_name"])
        model = build(opened.module, task, device)
    else:
        edited = {**task, "content": params["applied"], "module_name": f"{task['module_name'] or 'module'}_applied"}
        model = build(load_module(edited), edited, device)
    model.load_state_dict(opened.model.state_dict())
    return model


def _keep_original(model: torch.nn.Module) -> None:
    """Move the instance to a class of its own, with the `forward` that its class has now."""
    cls = type(model)
    names = {"forward": cls.forward, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    model.__class__ = type(cls.__name__, (cls,), names)
