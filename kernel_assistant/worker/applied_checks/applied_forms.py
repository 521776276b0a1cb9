"""Builds the user's module with its applied kernels, in the same process as the module without them."""

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
    """Returns the module with kernels, built like `opened.model` and with its weights. The edited text
    `params["applied"]` is imported under the path `params["edited"]`.

    In a class of an installed package, the kernels in the folder `params["package"]` replace `forward` after the
    import, as in a user's program: some files of a package cannot be executed twice, because they register the things
    that they define.
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
    """Context manager that yields the module of `with_kernels`, and undoes afterwards what this changed in the process,
    because the process handles other classes later.

    At the end a class of an installed package gets its old `forward` back, and the modules of the kernels' package are
    removed: the next class of the package loads them again, with counters at zero.
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
    """Returns how the calls of a package of kernels ran in this process: class name → `{"kernel": number of calls that
    ran kernels, "fallbacks": {reason: number of calls that ran the original forward}}`. `package` is the folder of the
    package."""
    return dict(runpy.run_path(os.path.join(package, "load.py"))["counters"]())


def _forget_package(package: str) -> None:
    """Removes the modules of a package of kernels from `sys.modules`. `package` is its folder, from whose path the
    package's load.py makes the name of these modules."""
    name = "_kernels_" + hashlib.sha256(os.fsencode(os.path.realpath(package))).hexdigest()[:16]
    for loaded in [one for one in sys.modules if one == name or one.startswith(name + ".")]:
        del sys.modules[loaded]


def keep_original(model: torch.nn.Module) -> None:
    """Gives `model`, and all submodules of the same class, a subclass that keeps the present `forward`, so that they do
    not change when the class gets another `forward` (the one with kernels).
    """
    cls = type(model)
    names = {"forward": cls.forward, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    kept = type(cls.__name__, (cls,), names)
    for one in list(model.modules()):
        if type(one) is cls:
            one.__class__ = kept
