"""Stores kernels of one class for instances of several sizes among the files of the class.

Files of the first size have plain names; names of files of further sizes begin with `size_…/`. A result replaces an
earlier result with the same parameters, attributes, non-tensor arguments and memory layout of the call's tensors;
otherwise it is added beside the earlier results.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from kernel_assistant.apply.package import Files
from kernel_assistant.apply.result import VerifiedResult
from kernel_assistant.errors import UsageError
from kernel_assistant.records import to_builtins
from kernel_assistant.worker.applied.fingerprint import fingerprint
from kernel_assistant.worker.applied.parts import SIZE, Parts


def size_folder(result: VerifiedResult, package: Path) -> str:
    """Returns the prefix for the names of a result's files in `package`: "" for the first size, or if the existing
    files belong to an older text of the class; else `size_` and a hash."""
    first = _guard(package, result.task.class_name)
    if first is None or first["fingerprint"] != fingerprint(result.task.content, result.task.class_name):
        return ""
    held = [to_builtins(value) for value in result.graph.inputs if value.kind != "input"]
    facts = result.facts
    wanted = _identity(held, facts["inputs"], facts["attributes"], facts["call"])
    users = [value["spec"] for value in first["inputs"] if value["kind"] == "input"]
    known = _identity(
        [value for value in first["inputs"] if value["kind"] != "input"], users, first["attributes"], first["call"]
    )
    return "" if wanted == known else SIZE + wanted


def with_others(files: Files, result: VerifiedResult, package: Path) -> Files:
    """Returns all files of a class: the new `files`, and the existing files of its other sizes, unless these belong to
    an older text of the class. Raises UsageError if the existing files cannot be read."""
    class_name = result.task.class_name
    first = _guard(package, class_name)
    if first is None or first["fingerprint"] != fingerprint(result.task.content, class_name):
        return files
    parts = Parts(str(package), class_name)
    replaced = {_size_of(name) for name in files}
    try:
        names = [name for name in parts.names() if _size_of(name) not in replaced]
        return {**{name: parts.read(name) for name in names}, **files}
    except (OSError, ValueError) as error:
        raise UsageError(f"{package} cannot be read: {error}", "undo the kernels first") from error


def _size_of(name: str) -> str:
    return name.partition("/")[0] if name.startswith(SIZE) else ""


def _guard(package: Path, class_name: str) -> dict[str, Any] | None:
    try:
        return dict(json.loads(Parts(str(package), class_name).read("provenance.json"))["guard"])
    except (OSError, ValueError, KeyError):
        return None


def _identity(
    held: list[dict[str, Any]], users: list[dict[str, Any]], attributes: dict[str, Any], call: dict[str, Any]
) -> str:
    """Returns a hash that identifies a size: of the attributes; of the names, dtypes and shapes of `held` (parameters
    and buffers); of the dtypes, ranks and strides of `users` (tensors of the call); and of other arguments of the
    call."""
    tensors = sorted((value["path"], value["spec"]["dtype"], value["spec"]["shape"]) for value in held)
    called = [(spec["dtype"], len(spec["shape"]), spec["strides"]) for spec in users]
    keywords = call.get("kwargs", {})
    form = [call["args"], keywords] if keywords or not all("input" in tree for tree in call["args"]) else []
    return hashlib.sha256(json.dumps([tensors, called, attributes, *form], sort_keys=True).encode()).hexdigest()[:8]
