"""Waits until the program imports torch, then installs the recorder. Standard library only."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import sys
import time
from collections.abc import Sequence
from types import ModuleType

STARTED_FILE = "started.json"


def begin(folder: str, *, outermost: bool = False) -> None:
    """Begins to record this process into a subfolder of `folder`: writes a file that shows that it was started, and
    installs the recorder once the program imports torch. Does nothing if the folder cannot be written. With
    `outermost`, only module calls that are not inside another module's call are timed."""
    own = os.path.join(folder, str(os.getpid()))
    try:
        os.makedirs(own, mode=0o700)
        with open(os.path.join(own, STARTED_FILE), "w", encoding="utf-8") as file:
            json.dump({"argv": list(sys.orig_argv), "executable": sys.executable}, file)
    except OSError:
        return
    sys.meta_path.insert(0, _TorchFinder(own, time.perf_counter(), outermost))


class _TorchFinder(importlib.abc.MetaPathFinder):
    """An import hook that finds torch as Python would, and installs the recorder after its import."""

    def __init__(self, folder: str, began: float, outermost: bool) -> None:
        self._folder, self._began, self._outermost = folder, began, outermost

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, self)
                return spec
        return None

    def loaded(self, torch: ModuleType, loader: importlib.abc.Loader) -> None:
        sys.meta_path.remove(self)
        torch.__loader__ = loader
        if torch.__spec__ is not None:
            torch.__spec__.loader = loader
        from .hooks import install

        install(self._folder, self._began, outermost=self._outermost)


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, finder: _TorchFinder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._finder.loaded(module, self._loader)
