"""Builds a module with its kernels beside the same module without them, in one process."""

from __future__ import annotations

import contextlib
import hashlib
import os
import runpy
import sys
from collections.abc import Iterator
from typing import Any

import torch

from ..opening.open_task import OpenTask
from ..user_module.loading import build, find_class, load_module


def with_kernels(opened: OpenTask, params: dict[str, Any], device: str) -> torch.nn.Module:
    """The module with kernels, built like `opened.model` and with its weights. The edited text `params["applied"]` is
    imported under the path `params["edited"]`.

    For a class of an installed package, `forward` is replaced from outside by the kernels in the folder `package`, as
    in a user's program: some files of a package cannot be executed twice, because they register the things that they
    define.
    """
    task = params["task"]
    if task.get("installed"):
        keep_original(opened.model)
        runpy.run_path(os.path.join(params["package"], "load.py"))["replaced"](task["class_name"], task["module_name"])
        model = build(opened.module, task, device)
    else:
        name = f"{task['module_name'] or 'module'}_applied"
        edited = {**task, "path": params["edited"], "content": params["applied"], "module_name": name}
        model = build(load_module(edited), edited, device)
        # torch.compile looks up the module of the original by name, and would otherwise import it again.
        sys.modules[opened.module.__name__] = opened.module
    model.load_state_dict(opened.model.state_dict())
    return model


@contextlib.contextmanager
def for_a_while(opened: OpenTask, params: dict[str, Any], device: str) -> Iterator[torch.nn.Module]:
    """A context manager that gives the module of `with_kernels`, for a process that handles other classes later.

    After the block an installed class has its old `forward`, and the package's modules are dropped: the next class of
    the package loads them again, with counters at zero.
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


def counters(package: str) -> dict[str, Any]:
    """Counters of the guards of a package in this process, by class."""
    return dict(runpy.run_path(os.path.join(package, "load.py"))["counters"]())


def _forget_package(package: str) -> None:
    """Drop the modules under the name that the package's load.py gives them."""
    name = "_kernels_" + hashlib.sha256(os.fsencode(os.path.realpath(package))).hexdigest()[:16]
    for loaded in [one for one in sys.modules if one == name or one.startswith(name + ".")]:
        del sys.modules[loaded]


def keep_original(model: torch.nn.Module) -> None:
    """Give the instance, and instances of the same class inside it, a subclass whose `forward` is the one that the
    class has now.
    """
    cls = type(model)
    names = {"forward": cls.forward, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    kept = type(cls.__name__, (cls,), names)
    for one in list(model.modules()):
        if type(one) is cls:
            one.__class__ = kept
