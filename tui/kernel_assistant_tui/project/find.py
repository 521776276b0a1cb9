"""The module classes below a folder, by syntax alone; nothing is imported or run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kernel_assistant.apply.package import MANIFEST
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.source.build import read_text
from kernel_assistant.source.find import ModuleClass, find_modules

#: Folders that hold other people's code, or none.
SKIPPED = frozenset(("__pycache__", "node_modules", "site-packages", "dist-packages", "build", "dist", "venv"))
#: Of a project that is far larger only the first files are looked at, and the list says so.
MOST_FILES = 20_000


def python_files(root: Path) -> Iterator[Path]:
    """The Python files of a project in order; `root` itself where it is a file. Environments, hidden folders and what
    `apply` has written are left out."""
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
    """Whether a file that changed would be found by `python_files` (but for an environment's own mark)."""
    if path == root:
        return True
    if path.suffix != ".py" or not path.is_relative_to(root):
        return False
    return not any(part in SKIPPED or part.startswith(".") for part in path.relative_to(root).parts[:-1])


def classes_in(path: Path) -> tuple[str, tuple[ModuleClass, ...]]:
    """Text and module classes that can be optimized where they stand; nothing of a file that is not Python, not there
    or not readable at the moment."""
    try:
        text = read_text(path)
        # Parsing is most of the time, and most files hold no modules.
        if "class " not in text or ("torch" not in text and "forward" not in text):
            return text, ()
        return text, tuple(one for one in find_modules(text, str(path)) if one.has_forward and one.addressable)
    except (KernelAssistantError, OSError):
        return "", ()
