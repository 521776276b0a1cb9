"""Makes the content of the package (the folder of kernels beside the user's file): a dict from file names to bytes, and
the manifest, which lists the files that this tool wrote."""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kernel_assistant.apply.edit import Edit
from kernel_assistant.apply.files import digest
from kernel_assistant.apply.provenance import AppliedOptions, provenance
from kernel_assistant.apply.result import VerifiedResult
from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask, decode, encode
from kernel_assistant.records.codec import Record
from kernel_assistant.worker.applied.parts import ARCHIVE, BINARY_SUFFIXES, TEXTS, pack_binaries, pack_texts

MANIFEST = "manifest.json"
TASK = "task.json"
MANIFEST_SCHEMA = "kernel-assistant/manifest/1"
#: The loader's modules, in one text.
RUNTIME = "_runtime.txt"
#: The folder of the loader's modules in older packages.
_RUNTIME_BEFORE = "_runtime"
_RUNNER_FILES = (
    *("__init__.py", "plan.py", "executor.py", "launching.py", "kernel_graph.py", "capture.py", "cuda_driver.py"),
    *("plan_graph.py", "libraries.py", "operations/__init__.py", "operations/choosing.py", "operations/convolution.py"),
    *("operations/cublaslt.py", "operations/cudnn.py", "operations/cudnn_graph.py", "operations/cudnn_library.py"),
    *("operations/kept_algorithms.py", "operations/opened_library.py", "locks.py"),
    *("pytorch/__init__.py", "pytorch/arena.py", "pytorch/aten.py", "pytorch/residual.py", "pytorch/tensors.py"),
    "pytorch/held.py",
)

#: Files that belong to the package, not to one of its classes.
LOADER_FILES = ("__init__.py", "load.py", RUNTIME)

Files = dict[str, bytes]


class Manifest(Record, frozen=True, kw_only=True):
    """The record that `undo` needs. It is stored in the package itself, because the job may be deleted.

    `before` and `after` are the SHA-256 of the user's file without and with our lines. `edits` has the added lines of
    each class, `own_import` says whether we added the import line, `files` maps a path in the package to its SHA-256.
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


def class_files(result: VerifiedResult, options: AppliedOptions, tool: str, size: str = "") -> Files:
    """Returns name → content of all files of one class, for one size of its instances; `size` is "" or the folder with
    which their names begin. `tool` is this tool's version."""
    document = provenance(result, options, tool)
    files: Files = {
        "plan.json": _pretty(json.loads(encode(result.plan))),
        "graph.txt": result.graph.text().encode(),
        "provenance.json": _pretty(document),
        TASK: _pretty(json.loads(encode(portable(result.task)))),
    }
    files.update((f"sources/{name}", text.encode()) for name, text in result.candidate.sources.items())
    files.update(result.binaries)
    return {f"{size}/{name}" if size else name: data for name, data in files.items()}


def packed(class_name: str, files: Files) -> Files:
    """Returns the files of one class as the package stores them, packed into two: one of all texts and one of all
    binaries, so that applying changes only a few files."""
    binaries = {name: data for name, data in files.items() if name.endswith(BINARY_SUFFIXES)}
    texts = {name: data for name, data in files.items() if name not in binaries}
    return {class_name + TEXTS: pack_texts(texts), class_name + ARCHIVE: pack_binaries(binaries)}


def owner(name: str) -> str:
    """Returns the name of the class to which the file `name` of the package belongs; "" for a file of the loader."""
    folder, inside, _ = name.partition("/")
    if inside:
        return "" if folder == _RUNTIME_BEFORE else folder
    return name.rpartition(".")[0] if name != RUNTIME and name.endswith((TEXTS, ARCHIVE)) else ""


def digests(files: Files) -> dict[str, str]:
    """Returns path → SHA-256 of the content, in the form in which a manifest stores it."""
    return {path: digest(data) for path, data in files.items()}


def portable(task: KernelTask) -> KernelTask:
    """Returns the task without its text, which is in the file beside the package, and without paths of folders, which
    other machines do not have."""
    return msgspec.structs.replace(task, path=Path(task.path).name, content="", search_path=())


def runtime_files() -> Files:
    """Returns the files of the loader: unchanged modules of the worker, all in one text file, and two small modules of
    the package itself."""
    worker = importlib.resources.files("kernel_assistant.worker")
    own = importlib.resources.files("kernel_assistant.apply") / "template"
    files = {name: (own / f"{name}.txt").read_bytes() for name in ("__init__.py", "load.py")}
    parts = {"__init__.py": b""}
    for entry in sorted((worker / "applied").iterdir(), key=lambda one: one.name):
        if entry.name.endswith(".py"):
            parts[f"applied/{entry.name}"] = entry.read_bytes()
    for name in _RUNNER_FILES:
        parts[f"runner/{name}"] = (worker / "runner" / name).read_bytes()
    return {**files, RUNTIME: pack_texts(parts)}


def read_manifest(folder: Path) -> Manifest | None:
    """Returns the manifest of our package at `folder`; None if the folder does not exist or is empty.

    Raises UsageError if the folder was not made by this tool.
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
    """A manifest of one of the two kinds. `files` maps a path in the package to its SHA-256."""

    @property
    def files(self) -> dict[str, str]: ...


def changed_files(folder: Path, manifest: HasFiles, class_name: str | None = None) -> list[str]:
    """Returns the paths of the files of the package, or of one class, whose content is not what this tool wrote.
    Missing files are not included."""
    known = {name: one for name, one in manifest.files.items() if class_name in (None, owner(name))}
    there = [name for name in sorted(known) if (folder / name).is_file()]
    return [name for name in there if digest((folder / name).read_bytes()) != known[name]]


def manifest_bytes(manifest: Record) -> bytes:
    return _pretty(json.loads(encode(manifest)))


def _pretty(document: Any) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()
