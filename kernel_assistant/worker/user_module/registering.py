"""Finds the Python modules that register operators outside ATen, and the text of those modules whose files a sandbox
cannot read."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

#: More text than this many bytes is not sent to a runner; its imports then fail there, and name the module.
MOST_TEXT = 16 << 20
#: Where torch says that an operator was defined.
_DEFINED = re.compile(r"^debug: registered at (.+):\d+$", re.MULTILINE)


def operators_of_libraries(plan: dict[str, Any]) -> list[str]:
    """Returns the operators outside ATen that a plan's residual calls (operators left to PyTorch) need, such as
    `transformers::grouped_mm_fallback`."""
    nodes = [node for launch in plan["launches"] if launch.get("call") for node in launch["call"]["nodes"]]
    return sorted({node["op"] for node in nodes if "::" in node["op"]})


def registering(operators: Iterable[str], module: ModuleType, content: str) -> dict[str, Any]:
    """Returns a dict that says what another process of this interpreter has to import in order to have the `operators`.

    `imports` maps each operator to the name of a module; if the module that defines it cannot be found, that is the
    user's `module`, whose text is `content` and whose import registers the operator too. `sources` maps the names of
    imported modules that lie outside the interpreter's folders to (path, text); it is empty if all of `imports` are
    inside.
    """
    imports = {operator: _module_of(operator, module) for operator in operators}
    if all(_is_installed(sys.modules[name]) for name in imports.values()):
        return {"imports": imports, "sources": {}}
    return {"imports": imports, "sources": _sources(module, content)}


def _module_of(operator: str, module: ModuleType) -> str:
    """Returns the name of the Python module that defines an operator; the user's `module` if it is not found."""
    qualified = operator.partition(".")[0]
    name = getattr(getattr(OPDEFS.get(qualified), "_init_fn", None), "__module__", None) or _by_file(operator)
    return name if name in sys.modules and name != "__main__" else module.__name__


def _by_file(operator: str) -> str | None:
    """Returns the name of the module in whose file the operator was defined with torch.library; None for an operator
    that is defined in C++."""
    match = _DEFINED.search(torch._C._dispatch_dump(operator))
    if match is None:
        return None
    return next((name for name, one in list(sys.modules.items()) if getattr(one, "__file__", None) == match[1]), None)


def _sources(module: ModuleType, content: str) -> dict[str, tuple[str, str]]:
    sources: dict[str, tuple[str, str]] = {}
    left = MOST_TEXT
    for name, one in list(sys.modules.items()):
        path = getattr(one, "__file__", None) or ""
        if not path.endswith(".py") or name == "__main__" or name.partition(".")[0] == __name__.partition(".")[0]:
            continue
        text = None if _is_installed(one) or _in_a_package(name) else content if one is module else _text(path)
        if text is not None and len(text) <= left:
            sources[name] = (path, text)
            left -= len(text)
    # The file need not end in .py.
    return {**sources, module.__name__: (str(module.__file__), content)}


def _in_a_package(name: str) -> bool:
    """Whether a module belongs to an installed package by its name, wherever its file is: the files that torch.compile
    writes are modules of `torch._inductor`. If such a module were sent to the runner, the runner would look up all
    imports of torch among the sent modules."""
    package = sys.modules.get(name.partition(".")[0])
    return bool(getattr(package, "__file__", None)) and _is_installed(package)


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def _is_installed(module: ModuleType | None) -> bool:
    """Whether a module is part of the interpreter's installation, which can be read in every sandbox."""
    path = getattr(module, "__file__", None)
    return not path or any(path.startswith(prefix + os.sep) for prefix in {sys.prefix, sys.base_prefix})
