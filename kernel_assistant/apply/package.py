"""The package beside the user's file, as file name → bytes, and the manifest that says which files are ours."""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kernel_assistant.apply.edit import Edit
from kernel_assistant.apply.files import digest
from kernel_assistant.apply.provenance import Options, provenance
from kernel_assistant.apply.result import Result
from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask, decode, encode
from kernel_assistant.records.codec import Record

MANIFEST = "manifest.json"
TASK = "task.json"
MANIFEST_SCHEMA = "kernel-assistant/manifest/1"
RUNTIME = "_runtime"
_RUNNER_FILES = (
    *("__init__.py", "plan.py", "executor.py", "launching.py", "kernel_graph.py", "cuda_driver.py"),
    *("libraries.py", "choosing.py", "cublaslt.py", "cudnn.py", "cudnn_graph.py"),
    *("cudnn_library.py", "convolution.py"),
    *("pytorch/__init__.py", "pytorch/aten.py", "pytorch/residual.py", "pytorch/tensors.py"),
)

Files = dict[str, bytes]


class Manifest(Record, frozen=True, kw_only=True):
    """What undo needs, kept in the package itself so that it outlives the job.

    `before` and `after` are SHA-256 of the user's file without and with our lines, `edits` the lines by class,
    `own_import` whether the import line is ours, `files` path in the package → SHA-256.
    """

    source: str
    before: str
    after: str
    own_import: bool
    edits: dict[str, Edit]
    files: dict[str, str]
    schema: str = MANIFEST_SCHEMA


def package_name(stem: str) -> str:
    return f"{stem}_kernels"


def class_files(result: Result, options: Options, tool: str, size: str = "") -> Files:
    """Everything of one class, below a folder of its name, or below the folder `size` in there."""
    document = provenance(result, options, tool)
    files: Files = {
        "plan.json": _pretty(json.loads(encode(result.plan))),
        "graph.txt": result.graph.text().encode(),
        "provenance.json": _pretty(document),
        TASK: _pretty(json.loads(encode(portable(result.task)))),
    }
    files.update((f"sources/{name}", text.encode()) for name, text in result.candidate.sources.items())
    files.update(result.binaries)
    folder = f"{result.task.class_name}/{size}/" if size else f"{result.task.class_name}/"
    return {folder + name: data for name, data in files.items()}


def digests(files: Files) -> dict[str, str]:
    """Path → SHA-256, as a manifest names them."""
    return {path: digest(data) for path, data in files.items()}


def portable(task: KernelTask) -> KernelTask:
    """How the class was built and called, without what belongs to one machine: folders, and the text, which lies
    beside the package."""
    return msgspec.structs.replace(task, path=Path(task.path).name, content="", search_path=())


def runtime_files() -> Files:
    """The loader: files of the worker as they are, two small files of the package's own."""
    worker = importlib.resources.files("kernel_assistant.worker")
    own = importlib.resources.files("kernel_assistant.apply") / "template"
    files = {name: (own / f"{name}.txt").read_bytes() for name in ("__init__.py", "load.py")}
    files[f"{RUNTIME}/__init__.py"] = b""
    for name in _RUNNER_FILES:
        files[f"{RUNTIME}/runner/{name}"] = (worker / "runner" / name).read_bytes()
    for entry in (worker / "applied").iterdir():
        if entry.name.endswith(".py"):
            files[f"{RUNTIME}/applied/{entry.name}"] = entry.read_bytes()
    return files


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of our package at `folder`, None where there is no folder (or only an empty one).

    Raises UsageError where the folder is somebody else's.
    """
    if not folder.exists():
        return None
    if not folder.is_dir() or folder.is_symlink():
        raise UsageError(f"{folder} is in the way and is not a folder of ours", "move or rename it")
    try:
        data = (folder / MANIFEST).read_bytes()
    except OSError:
        if all(entry.name == "__pycache__" for entry in folder.iterdir()):
            return None
        raise UsageError(f"{folder} is in the way: it was not made by kernel-assistant", "move or rename it") from None
    return decode(data, Manifest)


class HasFiles(Protocol):
    """A manifest of any kind: path in the package → SHA-256."""

    @property
    def files(self) -> dict[str, str]: ...


def changed_files(folder: Path, manifest: HasFiles, class_name: str | None = None) -> list[str]:
    """Files of the package, or of one class, that are no longer as we wrote them; missing ones do not count."""
    prefix = "" if class_name is None else f"{class_name}/"
    return [
        name
        for name, known in sorted(manifest.files.items())
        if name.startswith(prefix) and (folder / name).is_file() and digest((folder / name).read_bytes()) != known
    ]


def manifest_bytes(manifest: Manifest) -> bytes:
    return _pretty(json.loads(encode(manifest)))


def _pretty(document: Any) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()
