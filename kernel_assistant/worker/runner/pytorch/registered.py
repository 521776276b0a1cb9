"""Imports the Python modules that register a plan's operators outside ATen. Needs torch, which they import."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ..plan import PlanError

#: Path and text of modules by their names.
Sources = dict[str, tuple[str, str]]


class SentModules(MetaPathFinder, InspectLoader):
    """Imports modules from texts that the judge has sent, since the sandbox does not show the user's folders. `sources`
    has path and text of each module by name."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._sources:
            # A package without a file of its own.
            inside = any(name.startswith(f"{fullname}.") for name in self._sources)
            return ModuleSpec(fullname, None, is_package=True) if inside else None
        spec = ModuleSpec(fullname, self, origin=self._sources[fullname][0], is_package=self.is_package(fullname))
        spec.has_location = True
        return spec

    def is_package(self, fullname: str) -> bool:
        return os.path.basename(self._sources[fullname][0]) == "__init__.py"

    def get_source(self, fullname: str) -> str:
        return self._sources[fullname][1]

    def get_code(self, fullname: str) -> Any:
        path, text = self._sources[fullname]
        return compile(text, path, "exec", dont_inherit=True)


def import_registering(libraries: dict[str, Any]) -> None:
    """Imports the modules that register the plan's operators. `libraries` is what the worker's `registering` returned:
    "sources" maps modules to their path and text, "imports" maps operators to modules. Raises PlanError with the name
    of an operator whose module cannot be imported here."""
    sys.meta_path.insert(0, SentModules({name: tuple(item) for name, item in libraries["sources"].items()}))
    for operator, module in libraries["imports"].items():
        try:
            importlib.import_module(module)
        except Exception as error:
            words = str(error).strip().partition("\n")[0]
            raise PlanError(
                f"{operator} needs {module}, which cannot be imported in the sandbox: {type(error).__name__}: {words}"
            ) from error
