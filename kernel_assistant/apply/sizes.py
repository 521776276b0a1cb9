"""Kernels of one class for instances of several sizes: each in a folder of its own inside the folder of the class.

The first lies in `CLASS/`, further ones in `CLASS/size_…/`. A result replaces the one that was verified for the same
parameters and attributes, called with tensors that lie in memory alike, and stands beside those for others.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from kernel_assistant.apply.package import RUNTIME
from kernel_assistant.apply.result import Result
from kernel_assistant.records import to_builtins
from kernel_assistant.worker.applied.fingerprint import fingerprint

#: How the loader knows these folders (`worker/applied/contract.py`).
SIZE = "size_"


def size_folder(result: Result, package: Path) -> str:
    """Where in the folder of its class a result goes: "" for the first, and where everything there is out of date."""
    folder = package / result.task.class_name
    first = _guard(folder)
    if first is None or first["fingerprint"] != fingerprint(result.task.content, result.task.class_name):
        return ""
    held = [to_builtins(value) for value in result.graph.inputs if value.kind != "input"]
    wanted = _identity(held, result.facts["inputs"], result.facts["attributes"])
    users = [value["spec"] for value in first["inputs"] if value["kind"] == "input"]
    known = _identity([value for value in first["inputs"] if value["kind"] != "input"], users, first["attributes"])
    return "" if wanted == known else SIZE + wanted


def class_folders(folder: Path) -> list[str]:
    """`size_folder` of everything in the folder of a class, the first one first."""
    return ["", *sorted(path.parent.name for path in folder.glob(f"{SIZE}*/provenance.json"))]


def remaining(files: dict[str, str], class_name: str, size: str, package: Path, now: str) -> dict[str, str]:
    """Files of classes that stay when the kernels of one class in `size` are written anew for the fingerprint `now`."""
    first = _guard(package / class_name)
    stale = first is None or first["fingerprint"] != now
    return {path: value for path, value in files.items() if _stays(path.split("/"), class_name, size, stale)}


def _stays(parts: list[str], class_name: str, size: str, stale: bool) -> bool:
    if len(parts) == 1 or parts[0] != class_name:
        return len(parts) > 1 and parts[0] != RUNTIME
    own = parts[1] if parts[1].startswith(SIZE) else ""
    return own != size and not stale


def _guard(folder: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((folder / "provenance.json").read_bytes())["guard"])
    except (OSError, ValueError, KeyError):
        return None


def _identity(held: list[dict[str, Any]], users: list[dict[str, Any]], attributes: dict[str, Any]) -> str:
    """Parameters by name, dtype and shape; the user's tensors by dtype, rank and strides."""
    tensors = sorted((value["path"], value["spec"]["dtype"], value["spec"]["shape"]) for value in held)
    called = [(spec["dtype"], len(spec["shape"]), spec["strides"]) for spec in users]
    return hashlib.sha256(json.dumps([tensors, called, attributes], sort_keys=True).encode()).hexdigest()[:8]
