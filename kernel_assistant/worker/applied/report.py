"""What a program's calls were served by, left at its end for whoever asked with KERNEL_ASSISTANT_COUNTERS=FOLDER.

One file for each package, that of the last program that called it. Without the variable nothing is written.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

VARIABLE = "KERNEL_ASSISTANT_COUNTERS"
_asked: list[str] = []


def report_at_exit(package: str, counters: Callable[[], dict[str, dict[str, Any]]]) -> None:
    """Have `counters` of the package in folder `package` written when the program ends, once; if anybody asked."""
    folder = os.environ.get(VARIABLE, "")
    if folder and not _asked:
        _asked.append(folder)
        atexit.register(_write, folder, package, counters)


def file_name(package: str) -> str:
    """The report's, for a package's folder without links in its path."""
    return hashlib.sha256(os.fsencode(package)).hexdigest()[:24] + ".json"


def _write(folder: str, package: str, counters: Callable[[], dict[str, dict[str, Any]]]) -> None:
    found = {name: one for name, one in counters().items() if one["kernel"] or one["fallbacks"]}
    if not found:
        return
    package = os.path.realpath(package)
    path = os.path.join(folder, file_name(package))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump({"package": package, "classes": found}, file)
        os.replace(f"{path}.{os.getpid()}", path)
    except OSError:
        pass  # a program must not fail at its end because nobody can be told
