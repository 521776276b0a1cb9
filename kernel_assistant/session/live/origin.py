"""Finds where the class of a module instance was written: in a file, or in the session (notebook or prompt) into which
it was typed."""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_assistant.errors import StoreError, UsageError
from kernel_assistant.session.live.carried import carried
from kernel_assistant.session.live.cells import class_definition, is_of_session, where

_NEXT_STEP = "write the class at the top level of a .py file and import it from there"
#: From this version on, Python's own prompt keeps the text that is typed.
_KEEPS = (3, 13)


@dataclass(frozen=True)
class ClassOrigin:
    """The file and text of a class. `module` is the module name that pickle writes for the class. For a class in a file
    of the user, `session` is "". For a class that was typed into a session, `session` describes it, and `path` and
    `text` are those of a file that this package wrote."""

    path: Path
    text: str
    module: str
    name: str
    session: str = ""


def torch_of(module: Any) -> ModuleType:
    """Returns the module `torch` that the caller has imported, without importing it. Raises UsageError if `module` is
    not a `torch.nn.Module`."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise UsageError(f"{type(module).__name__} is not a torch.nn.Module", "pass an instance of a module class")
    return torch


def check_class(cls: type) -> None:
    """Raises UsageError unless the class is at the top level of its module and still found there under its name."""
    if "<locals>" in cls.__qualname__ or "." in cls.__qualname__:
        raise UsageError(f"{cls.__qualname__} is not at the top level of its file", _NEXT_STEP)
    if getattr(sys.modules.get(cls.__module__), cls.__name__, None) is not cls:
        next_step = "make the module anew, with the newest classes"
        raise UsageError(f"{cls.__module__}.{cls.__name__} is not the class of this instance any more", next_step)


def origin_of(cls: type, module_class: type, state: Path, others: Iterable[str] = ()) -> ClassOrigin:
    """Returns the origin of a class. For a class that was typed into a session, writes a file below `state` with the
    class, `others` and everything that they use.

    `module_class` is `torch.nn.Module`. Raises UsageError if the text of the class is not known or cannot be copied.
    """
    if not is_of_session(cls):
        return _in_file(cls)
    if class_definition(cls) is None:
        raise _no_text(cls)
    text = carried(cls.__name__, others, module_class)
    folder = state / "cells" / hashlib.sha256(text.encode()).hexdigest()[:24]
    keep(folder, "cells.py", text.encode())
    return ClassOrigin(folder / "cells.py", text, cls.__module__, cls.__name__, where())


def keep(folder: Path, name: str, content: bytes) -> None:
    """Writes `content` to the file `name` in `folder`, readable for this user only; does nothing if the file exists.
    Raises StoreError."""
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            draft = path.with_name(f"{name}.{os.getpid()}")
            draft.write_bytes(content)
            draft.replace(path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}", f"free disk space below {folder}") from error


def _in_file(cls: type) -> ClassOrigin:
    try:
        file = inspect.getsourcefile(cls)
        text = Path(file or "").read_text(encoding="utf-8-sig")
    except (OSError, TypeError, UnicodeDecodeError) as error:
        raise UsageError(f"{cls.__qualname__} has no source file: {error}", _NEXT_STEP) from error
    if not any(isinstance(node, ast.ClassDef) and node.name == cls.__name__ for node in ast.walk(ast.parse(text))):
        raise UsageError(f"{cls.__qualname__} has no source in {file}", _NEXT_STEP)
    return ClassOrigin(Path(str(file)).absolute(), text, cls.__module__, cls.__name__)


def _no_text(cls: type) -> UsageError:
    at_prompt = sys.version_info < _KEEPS and where() == "a Python session"
    why = ": Python's own prompt keeps what is typed from Python 3.13 on" if at_prompt else ""
    return UsageError(
        f"the source of {cls.__name__} is not kept by this session{why}",
        "put the class into a .py file and import it, or use IPython or Jupyter",
    )
