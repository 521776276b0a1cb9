"""Adds a binary for one more architecture to an applied class and to the package's manifest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from kernel_assistant.apply.applied import AppliedClass
from kernel_assistant.apply.files import write_atomically
from kernel_assistant.apply.package import MANIFEST, Files, digests, packed
from kernel_assistant.records import encode
from kernel_assistant.worker.applied.parts import Parts


def add_binary(applied: AppliedClass, name: str, content: bytes, facts: dict[str, Any]) -> str:
    """Writes the binary `content` to the class's files and returns its file name. This is `name`; if `name` exists
    already but cannot run on this machine, a hash of the processor's features is added to it.

    `facts` are what the worker reported on this machine. The binary is written first and the manifest last, so that the
    manifest never lists a missing file. Raises UsageError.
    """
    flags = sorted(facts.get("cpu_flags", []))
    parts = Parts(str(applied.package), applied.class_name)
    size = f"{applied.size}/" if applied.size else ""
    if f"{size}{name}" in parts.names():
        stem, _, suffix = name.rpartition(".")
        name = f"{stem}.{hashlib.sha256(' '.join(flags).encode()).hexdigest()[:8]}.{suffix}"
    document = dict(applied.provenance)
    if applied.candidate.plan.target == "cpu":
        known = document["guard"].get("binary_flags", {})
        document["guard"] = {**document["guard"], "binary_flags": {**known, name: flags}}
    document["added"] = {**document.get("added", {}), name: facts.get("versions", {})}
    arch = name.split(".")[1]
    document["left_out"] = {key: why for key, why in document.get("left_out", {}).items() if key != arch}
    provenance = (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()
    _write(applied, parts, {f"{size}{name}": content, f"{size}provenance.json": provenance})
    return name


def _write(applied: AppliedClass, parts: Parts, fresh: Files) -> None:
    """Writes the files `fresh` of the class: to a folder of the class if the package has one, as in older versions;
    else into the package's two files for this class, one of texts and one of binaries. Then updates the manifest."""
    if (applied.package / applied.class_name).is_dir():
        files = {f"{applied.class_name}/{name}": data for name, data in fresh.items()}
    else:
        files = packed(applied.class_name, {**{name: parts.read(name) for name in parts.names()}, **fresh})
    for name, data in reversed(files.items()):
        write_atomically(applied.package / name, data)
    manifest = msgspec.structs.replace(applied.manifest, files={**applied.manifest.files, **digests(files)})
    path = Path(applied.package, MANIFEST)
    write_atomically(path, (json.dumps(json.loads(encode(manifest)), indent=1, ensure_ascii=False) + "\n").encode())
