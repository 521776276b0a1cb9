"""The module with its kernels beside the module without, in one process."""

from __future__ import annotations

import contextlib
import hashlib
import os
import runpy
import sys
from collections.abc import Iterator
from typing import Any

import torch

from .loading import build, find_class, load_module
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


@contextlib.contextmanager
def for_a_while(opened: OpenTask, params: dict[str, Any], device: str) -> Iterator[torch.nn.Module]:
    """`with_kernels` for a block, in a process that goes on to other classes.

    Behind it an installed class has the `forward` that it had, and the package is forgotten: another class of it is
    then replaced by what lies there, and counted from zero.
    """
    task = params["task"]
    cls = find_class(opened.module, task) if task.get("installed") else None
    forward = None if cls is None else cls.__dict__.get("forward")
    _forget_package(params["package"])
    try:
        yield with_kernels(opened, params, device)
    finally:
        if cls is not None and forward is not None:
            cls.forward = forward
        elif cls is not None and "forward" in cls.__dict__:
            del cls.forward
        _forget_package(params["package"])


def _forget_package(package: str) -> None:
    """Drop the modules under the name that the package's load.py gives them."""
    name = "_kernels_" + hashlib.sha256(os.fsencode(os.path.realpath(package))).hexdigest()[:16]
    for loaded in [one for one in sys.modules if one == name or one.startswith(name + ".")]:
        del sys.modules[loaded]


def _keep_original(model: torch.nn.Module) -> None:
    """Move the instance to a class of its own, with the `forward` that its class has now."""
    cls = type(model)
    names = {"forward": cls.forward, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    model.__class__ = type(cls.__name__, (cls,), names)
