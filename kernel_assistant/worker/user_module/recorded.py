"""Loads modules and calls that `scan` recorded, from the files of `recording/samples.py`."""

from __future__ import annotations

import json
import os
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from ..process.worker_errors import TaskError

#: The module that the files name, in which the recorder's functions are.
_WRITER = "kernel_assistant_recording.samples"


def recorded_module(folder: str, module: types.ModuleType, cls: type, device: str) -> torch.nn.Module:
    """Returns the module as the scanned program had it, or a new one that is built from its constructor arguments if
    only these were kept. `folder` has the saved files, `cls` is its class.

    Classes of the module's own file are replaced by those of `module`, even if the program imported that file under
    another name. Raises TaskError cannot_build or no_inputs (the recording is gone); errors of the program's own code
    during unpickling pass through.
    """
    path = os.path.join(folder, "module.pt")
    if os.path.exists(path):
        model = _load(path, folder, module)
    else:
        args, kwargs, dtype = _load(os.path.join(folder, "init.pt"), folder, module)
        with torch.device(device):
            model = cls(*args, **kwargs)
        model = model if dtype is None else model.to(dtype)
    if not isinstance(model, cls) or not isinstance(model, torch.nn.Module):
        raise TaskError(
            "cannot_build",
            f"the recording holds a {type(model).__qualname__}, which is not {cls.__qualname__} of the file any more",
            "scan the program again",
        )
    return model


def recorded_calls(folder: str, module: types.ModuleType) -> Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]:
    """Returns a function that maps the number of a recorded call to its (args, kwargs), read from its file each time.
    Kept values are on the CPU; tensors that were too large to keep are drawn from torch's generator on the default
    device.
    """

    def recorded(number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = _load(os.path.join(folder, f"inputs-{number}.pt"), folder, module)
        return args, kwargs

    return recorded


def held(tensor: torch.Tensor) -> torch.Tensor:
    """Returns `tensor`, whose values the scan saved. Saved files call this function by its name around each saved
    tensor."""
    return tensor


def drawn(described: dict[str, Any]) -> torch.Tensor:
    """Returns a random tensor with the shape, strides, dtype, mean, standard deviation and bounds in `described`, in
    place of one that was too large to save.

    It is drawn on the default device: a CPU takes half a second for fifty million numbers, and a full evaluation draws
    each input ten times.
    """
    dtype = getattr(torch, described["dtype"])
    shape, strides = described["shape"], described["strides"]
    distinct = [1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True)]
    lowest, highest = described.get("lowest", 0.0), described.get("highest", 0.0)
    if dtype.is_floating_point:
        values = torch.randn(distinct).mul_(described.get("deviation", 0.0)).add_(described.get("mean", 0.0))
        values = values.clamp_(lowest, highest)
    elif dtype is torch.bool:
        values = torch.rand(distinct) < described.get("mean", 0.0)
    else:
        values = torch.randint(int(lowest), int(highest) + 1, distinct)
    return torch.empty_strided(distinct, strides, dtype=dtype).copy_(values).expand(shape)


def _load(path: str, folder: str, module: types.ModuleType) -> Any:
    try:
        with open(os.path.join(folder, "origin.json"), encoding="utf-8") as file:
            origin = json.load(file)
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=_pickling(origin, module))
    except FileNotFoundError as error:
        raise TaskError(
            "no_inputs", f"the recording {os.path.basename(folder)} is gone", "scan the program again"
        ) from error


def _pickling(origin: dict[str, str], module: types.ModuleType) -> Any:
    class Unpickler(pickle.Unpickler):
        def find_class(self, module_name: str, name: str, /) -> Any:
            if module_name == _WRITER:
                return {"held": held, "drawn": drawn}[name]
            if module_name == origin["module"]:
                return _attribute(module, name)
            if module_name == "__main__":
                return _from_main(origin["main"], module, name)
            return super().find_class(module_name, name)

    pickling = types.ModuleType("kernel_assistant_pickle")
    pickling.Unpickler = Unpickler  # type: ignore[attr-defined]
    pickling.load = pickle.load  # type: ignore[attr-defined]
    return pickling


def _from_main(path: str, module: types.ModuleType, name: str) -> Any:
    """Returns the object `name` of the program's own script `path`, which cannot be imported as a module here. Raises
    TaskError cannot_build if it is not found."""
    modules = [one for one in list(sys.modules.values()) if path and getattr(one, "__file__", None) == path]
    for candidate in (module, *modules):
        if hasattr(candidate, name.partition(".")[0]):
            return _attribute(candidate, name)
    raise TaskError(
        "cannot_build",
        f"the recording needs {name}, which {os.path.basename(path) or 'the program'} itself defines",
        f"move {name} to a module that both import",
    )


def _attribute(module: types.ModuleType, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value
