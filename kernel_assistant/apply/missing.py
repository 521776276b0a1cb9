"""Adds a binary for one more architecture to an applied class, and to what its package says of itself."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from kernel_assistant.apply.applied import AppliedClass
from kernel_assistant.apply.files import digest, write_atomically
from kernel_assistant.apply.package import MANIFEST
from kernel_assistant.records import encode


def add_binary(applied: AppliedClass, name: str, content: bytes, facts: dict[str, Any]) -> str:
    """Write `content` as `name`, or beside a file of that name that this machine cannot run; the name taken.

    `facts` are the worker's on this machine. Binary first, manifest last: what is named is there. Raises UsageError.
    """
    flags = sorted(facts.get("cpu_flags", []))
    if (applied.folder / name).exists():
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
    write_atomically(applied.folder / name, content)
    write_atomically(applied.folder / "provenance.json", provenance)
    _note(applied, {name: content, "provenance.json": provenance})
    return name


def _note(applied: AppliedClass, files: dict[str, bytes]) -> None:
    place = applied.folder.relative_to(applied.package)
    fresh = {f"{place}/{name}": digest(data) for name, data in files.items()}
    manifest = msgspec.structs.replace(applied.manifest, files={**applied.manifest.files, **fresh})
    path = Path(applied.package, MANIFEST)
    write_atomically(path, (json.dumps(json.loads(encode(manifest)), indent=1, ensure_ascii=False) + "\n").encode())
