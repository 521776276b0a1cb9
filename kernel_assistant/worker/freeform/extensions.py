"""Replaces torch's `load_inline` and `load` for a candidate: they compile in the build sandbox, and only import in the
runner.

A runner may not start processes, so it imports the shared objects that the build created, in the order of the calls.
"""

from __future__ import annotations

import glob
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch.utils.cpp_extension as cpp_extension

MANIFEST = "extensions.json"


class Builder:
    """Replaces torch's `load_inline` and `load` while a candidate is built, and notes each extension that they compile;
    `write` writes that list (the manifest)."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.built: list[dict[str, str]] = []
        self._inline, self._load = cpp_extension.load_inline, cpp_extension.load

    def install(self) -> None:
        cpp_extension.load_inline = self.load_inline
        cpp_extension.load = self.load

    def load_inline(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._build(self._inline, name, args, kwargs)

    def load(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._build(self._load, name, args, kwargs)

    def _build(self, call: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        folder = os.path.join(self.folder, f"extension{len(self.built)}")
        os.makedirs(folder, exist_ok=True)
        module = call(name, *args, **{**kwargs, "build_directory": folder, "verbose": False})
        (path,) = glob.glob(os.path.join(glob.escape(folder), "*.so"))
        self.built.append({"asked": name, "path": os.path.relpath(path, self.folder)})
        return module

    def write(self) -> None:
        with open(os.path.join(self.folder, MANIFEST), "w", encoding="utf-8") as file:
            json.dump(self.built, file)


class Prebuilt:
    """Replaces torch's `load_inline` and `load` in the runner: `take` imports the extensions that `Builder` has built
    in `folder`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
            self._waiting: list[dict[str, str]] = json.load(file)

    def install(self) -> None:
        cpp_extension.load_inline = self.take
        cpp_extension.load = self.take

    def take(self, name: str, *args: Any, **kwargs: Any) -> ModuleType:
        """Imports and returns the next extension of the manifest. Raises RuntimeError if that is not the extension
        `name`."""
        if not self._waiting or self._waiting[0]["asked"] != name:
            raise RuntimeError(f"extension {name!r} was not built at this place: build it when the file is imported")
        return import_extension(os.path.join(self.folder, self._waiting.pop(0)["path"]))


def import_extension(path: str) -> ModuleType:
    """Imports and returns the Python extension module in the file `path`; the module's name is the file's name up to
    the first dot. Raises ImportError if it is none."""
    name = os.path.basename(path).partition(".")[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not an extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.setdefault(name, module)
    return module


#: Compiler flags of the public CUDA-Agent workdir (utils/compile.py).
WORKDIR_FLAGS: dict[str, Any] = {
    "with_cuda": True,
    "extra_cflags": ["-O3", "-std=c++17"],
    "extra_cuda_cflags": ["-O3", "--use_fast_math"],
}
