"""Applied packages in the form of earlier versions: the files of each class in a folder of its own."""

from __future__ import annotations

import json
from pathlib import Path

from kernel_assistant.apply.files import digest
from kernel_assistant.apply.package import owner
from kernel_assistant.worker.applied.parts import Parts


def lay_out(package: Path) -> None:
    """Turns `CLASS.txt` and `CLASS.kernels` into folders, also in the manifest."""
    path = package / "manifest.json"
    manifest = json.loads(path.read_text())
    for class_name in {owner(name) for name in manifest["files"]} - {""}:
        parts = Parts(str(package), class_name)
        files = {f"{class_name}/{name}": parts.read(name) for name in parts.names()}
        for name in [name for name in manifest["files"] if owner(name) == class_name]:
            (package / name).unlink()
            del manifest["files"][name]
        for name, data in files.items():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_bytes(data)
            manifest["files"][name] = digest(data)
    path.write_text(json.dumps(manifest))
