"""Imports the user's file from the text in the task and builds its class."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import linecache
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from ..process.memory import MemoryGuard
from ..process.worker_errors import TaskError, user_code
from .recorded import recorded_module

#: Modules that existed before the first load: those of this process, wherever their files are.
_ours: set[str] = set()
#: Path → seconds of its longest import here: a later import finds the libraries loaded.
_longest: dict[str, float] = {}


def load_module(task: dict[str, Any]) -> ModuleType:
    """Executes the text `task["content"]` as a module under its real name and path, so that pickle and inspect work
    with it. The file of an installed package is imported from disk instead.

    The text may differ from the file on disk. Modules that an earlier load imported from the same folders are dropped
    first, so that an edited helper file takes effect. Raises TaskError import_failed.
    """
    if not _ours:
        _ours.update(sys.modules)
    path, name = task["path"], task["module_name"] or os.path.splitext(os.path.basename(task["path"]))[0]
    folders = list(task["search_path"])
    _forget(folders)
    for folder in reversed(folders):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    importlib.invalidate_caches()
    linecache.cache[path] = (len(task["content"]), None, task["content"].splitlines(keepends=True), path)
    began = time.perf_counter()
    with user_code("import_failed", f"importing {os.path.basename(path)}", "mend the file so that it imports", path):
        if task.get("installed") and importlib.util.find_spec(name) is not None:
            # If it were executed again, its classes would differ from those that the rest of its package uses.
            module = importlib.import_module(name)
        else:
            module = _execute(name, path, task["content"])
    _longest[path] = max(_longest.get(path, 0.0), time.perf_counter() - began)
    return module


def import_seconds(path: str) -> float:
    """Returns the longest time in seconds that this process has needed to import the file `path`, as an estimate for
    other processes; 0 if it was not imported here."""
    return _longest.get(path, 0.0)


def find_class(module: ModuleType, task: dict[str, Any]) -> type[torch.nn.Module]:
    """Returns the class that the task names. Raises TaskError no_class if the module has no such torch.nn.Module."""
    attribute = getattr(module, task["class_name"], None)
    if isinstance(attribute, type) and issubclass(attribute, torch.nn.Module):
        return attribute
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and value.__module__ == module.__name__
    ]
    reason = "is not a torch.nn.Module" if isinstance(attribute, type) else "is not defined when the file is imported"
    raise TaskError(
        "no_class", f"{task['class_name']} {reason}", f"name one of the module classes: {', '.join(names) or 'none'}"
    )


def build(module: ModuleType, task: dict[str, Any], device: str) -> torch.nn.Module:
    """Returns an instance of the task's class on `device`, built after seeding with the task's seed, in training or
    evaluation mode as the task says. Its parameters need no gradient.

    Raises TaskError cannot_build, or out_of_memory before an allocation that would not fit.
    """
    cls, path = find_class(module, task), task["path"]
    what = f"building {cls.__name__}"
    hint = "declare constructor arguments: init=(...) in the comment, or get_init_inputs()"
    seed_everything(task["seed"])
    with user_code("cannot_build", what, hint, path), MemoryGuard(device, what), torch.device(device):
        if task.get("recording") and not (task["init"] or task["init_kwargs"]):
            model = recorded_module(task["recording"], module, cls, device)
        else:
            args, kwargs = _init_arguments(module, task)
            _check_signature(cls, args, kwargs, task)
            model = cls(*args, **kwargs)
        model = model.to(device)
        model.train(bool(task["training"]))
        return model.requires_grad_(False)


def evaluate(expression: str, module: ModuleType, recorded: Callable[[int], Any] | None = None) -> Any:
    """Evaluates an expression of the task in the module's namespace, with `torch` and, if given, `recorded` (number of
    a recorded call → its arguments) in scope."""
    names = {"torch": torch, **vars(module), **({} if recorded is None else {"recorded": recorded})}
    return eval(compile(expression, "<kernel-assistant>", "eval"), names)


def seed_everything(seed: int) -> None:
    """Seeds the random generators of torch, Python and, if it is imported, numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def _init_arguments(module: ModuleType, task: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if task["init"] or task["init_kwargs"]:
        args = evaluate(task["init"], module) if task["init"] else ()
        kwargs = evaluate(task["init_kwargs"], module) if task["init_kwargs"] else {}
        return tuple(args) if isinstance(args, (tuple, list)) else (args,), dict(kwargs)
    function = getattr(module, "get_init_inputs", None)
    if task["source"] != "get_inputs" or function is None:
        return (), {}
    result = function()
    if isinstance(result, dict):
        return (), result
    return tuple(result) if isinstance(result, (tuple, list)) else (result,), {}


def _check_signature(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any], task: dict[str, Any]) -> None:
    """Raises TaskError (cannot_build), with the constructor's parameters in the message, if the declared arguments do
    not fit; this is the usual mistake."""
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):  # the class is written in C or has a metaclass of its own
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TaskError(
            "cannot_build",
            f"{cls.__name__}{signature} cannot be built from what is declared: {error}",
            f"declare them: # kernel-assistant: init=(...) above class {task['class_name']}, or get_init_inputs()",
        ) from error


def _execute(name: str, path: str, content: str) -> ModuleType:
    package = name.rpartition(".")[0]
    if package:
        importlib.import_module(package)
    elif name in sys.modules and getattr(sys.modules[name], "__file__", None) != path:
        name = f"{name}_module"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:  # the file's name does not end in .py
        spec = importlib.machinery.ModuleSpec(name, None, origin=path)
    module = importlib.util.module_from_spec(spec)
    module.__file__ = path
    code = compile(content, path, "exec", dont_inherit=True)
    with _registered(name, module):
        exec(code, module.__dict__)
    if package:
        setattr(sys.modules[package], name.rpartition(".")[2], module)
    return module


@contextlib.contextmanager
def _registered(name: str, module: ModuleType) -> Iterator[None]:
    sys.modules[name] = module
    try:
        yield
    except BaseException:
        sys.modules.pop(name, None)
        raise


def _forget(folders: list[str]) -> None:
    """Removes from sys.modules the modules under `folders` that earlier loads have imported, except installed packages
    and our own modules."""
    package = __name__.partition(".")[0]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or name in _ours or name.partition(".")[0] in (package, "torch"):
            continue
        installed = "site-packages" in file or "dist-packages" in file or file.startswith(sys.prefix + os.sep)
        if not installed and any(file.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders):
            _unregister(module)
            del sys.modules[name]


def _unregister(module: ModuleType) -> None:
    """Removes the operators that a module has registered, because torch does not allow a second definition."""
    for value in list(vars(module).values()):
        if isinstance(value, torch.library.Library):
            value._destroy()  # type: ignore[no-untyped-call]
