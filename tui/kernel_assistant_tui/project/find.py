"""Finds the module classes below a folder by their syntax; nothing is imported or run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kernel_assistant.apply.package import MANIFEST
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.source.build import read_text
from kernel_assistant.source.find import ModuleClass, find_modules

#: Folders that are skipped: they contain the code of others, or no code.
SKIPPED = frozenset(("__pycache__", "node_modules", "site-packages", "dist-packages", "build", "dist", "venv"))
#: Most files that are read of a project; a warning is shown if there are more.
MOST_FILES = 20_000


def python_files(root: Path) -> Iterator[Path]:
    """Yield the Python files of a project in order; `root` itself if it is a file. Virtual environments, hidden
    folders and packages written by `apply` are skipped."""
    if root.is_file():
        yield root
        return
    count = 0
    for folder, names, files in os.walk(root):
        if "pyvenv.cfg" in files or MANIFEST in files:
            names.clear()
            continue
        names[:] = sorted(name for name in names if name not in SKIPPED and not name.startswith("."))
        for name in sorted(files):
            if name.endswith(".py"):
                yield Path(folder, name)
                count += 1
                if count >= MOST_FILES:
                    return


def is_part_of(root: Path, path: Path) -> bool:
    """Return whether `python_files` would yield the file `path`, judged by its path: a virtual environment is
    recognized by the name of its folder only."""
    if path == root:
        return True
    if path.suffix != ".py" or not path.is_relative_to(root):
        return False
    return not any(part in SKIPPED or part.startswith(".") for part in path.relative_to(root).parts[:-1])


def classes_in(path: Path) -> tuple[str, tuple[ModuleClass, ...]]:
    """Return the text of a file and its module classes that can be optimized. Return "" and () if the file is
    missing, unreadable or not Python."""
    try:
        text = read_text(path)
        # Parsing takes most of the time, and most files have no modules.
        if "class " not in text or ("torch" not in text and "forward" not in text):
            return text, ()
        return text, tuple(one for one in find_modules(text, str(path)) if one.has_forward and one.addressable)
    except (KernelAssistantError, OSError):
        return "", ()
