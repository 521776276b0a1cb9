"""Applied packages as they lie in a project: found, read, compared with the file that they serve."""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_assistant.apply.edit import IMPORT_LINE, Edit
from kernel_assistant.apply.files import read_bytes
from kernel_assistant.apply.outside import OUTSIDE_SCHEMA, OutsideManifest
from kernel_assistant.apply.package import MANIFEST, MANIFEST_SCHEMA, TASK, Manifest, changed_files, package_name
from kernel_assistant.apply.sizes import class_folders
from kernel_assistant.apply.takeback import decorated_classes, take_back
from kernel_assistant.apply.text import decode_source
from kernel_assistant.environment.headers import source_paths
from kernel_assistant.errors import UsageError
from kernel_assistant.records import Candidate, KernelTask, Plan, decode
from kernel_assistant.source.reach import reachable
from kernel_assistant.worker.applied.fingerprint import fingerprint
from kernel_assistant.worker.applied.report import file_name

#: A syntax tree takes a hundred times the room of its text: one at a time.
_parsing = threading.Lock()
_SKIPPED = frozenset(("node_modules", "__pycache__", "site-packages", "dist-packages"))


@dataclass(frozen=True)
class AppliedClass:
    """One class of one package, for instances of one size (`apply/sizes.py`).

    `source` is the file that it serves; for a class that is replaced from outside it is None until the module `module`
    has been looked up.
    """

    package: Path
    class_name: str
    manifest: Manifest | OutsideManifest
    source: Path | None
    module: str
    provenance: dict[str, Any]
    candidate: Candidate
    task: KernelTask | None
    size: str = ""

    @property
    def folder(self) -> Path:
        return self.package / self.class_name / self.size

    @property
    def name(self) -> str:
        """`model.py:Gate` or `library.layers:Gate`, for people."""
        place = f"{self.module or self.package.parent / self.manifest_source}:{self.class_name}"
        return f"{place}/{self.size}" if self.size else place

    @property
    def manifest_source(self) -> str:
        return self.manifest.source if isinstance(self.manifest, Manifest) else ""

    @property
    def guard(self) -> dict[str, Any]:
        return dict(self.provenance["guard"])

    def changed(self) -> list[str]:
        """Files of the class and the loader that are not as they were written, missing ones included."""
        served = self.manifest.edits if isinstance(self.manifest, Manifest) else self.manifest.classes
        others = {name for name in served if name != self.class_name}
        changed = [*changed_files(self.package, self.manifest), *self._missing()]
        return [name for name in changed if name.partition("/")[0] not in others]

    def _missing(self) -> list[str]:
        return [name for name in self.manifest.files if not (self.package / name).is_file()]


def find_applied(paths: Iterable[Path]) -> list[AppliedClass]:
    """Every applied class at or below `paths`: a package, a file with one beside it, or a folder to look through.

    Environments and hidden folders below a named one are left out. Raises UsageError for a path that is not there
    and for a package that cannot be read.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        for package in _packages(path.absolute()):
            found.setdefault(package.resolve(), package)
    return [one for package in found.values() for one in _read(package)]


def reference_text(applied: AppliedClass, text: str) -> str:
    """The file's text without any of our lines: what the kernels have to equal."""
    if not isinstance(applied.manifest, Manifest):
        return text
    for name in dict.fromkeys([*applied.manifest.edits, *decorated_classes(text)]):
        edit = applied.manifest.edits.get(name, Edit(hunks=()))
        text = take_back(text, name, edit, IMPORT_LINE if applied.manifest.own_import else None)
    return text


def staleness(applied: AppliedClass, text: str) -> str:
    """Why the kernels are no longer those of the file `text`, "" if they are."""
    try:
        now = fingerprint(text, applied.class_name)
        served = isinstance(applied.manifest, OutsideManifest) or applied.class_name in decorated_classes(text)
    except (SyntaxError, ValueError) as error:
        return f"the file is not Python any more: {error}"
    if not now:
        return f"the file has no class {applied.class_name} any more"
    if not served:
        return "the file does not name its kernels any more (the decorator is gone)"
    if now != applied.guard["fingerprint"]:
        return f"{applied.class_name} has been edited since its kernels were verified"
    return ""


def report_name(package: Path) -> str:
    """File name under which the kernels of `package` report what they served (`worker/applied/report.py`)."""
    return file_name(os.path.realpath(package))


def is_same_class(text: str, then: str, class_name: str) -> bool:
    """Whether a class computes the same in two texts of its file; also where either is not Python at the moment."""
    try:
        with _parsing:
            return text == then or _fingerprint(text, class_name) == _fingerprint(then, class_name)
    except (SyntaxError, ValueError):
        return True


@functools.lru_cache(maxsize=4)
def _fingerprint(text: str, class_name: str) -> str:
    """For an editor's server, which asks again and again. Only what the class can depend on is parsed: all of a text
    of 5,000 lines takes 0.1 s, and memory that a process keeps."""
    try:
        return fingerprint(reachable(text, class_name), class_name)
    except SyntaxError:
        return fingerprint(text, class_name)


def source_text(path: Path) -> str:
    """Text of a Python file in its own encoding. Raises UsageError where it cannot be read."""
    return decode_source(read_bytes(path), path.name).text


def _packages(path: Path) -> Iterator[Path]:
    if path.is_file() and path.suffix == ".py":
        path = path.parent / package_name(path.stem)
        if not path.is_dir():
            raise UsageError(f"{path.parent} has no {path.name}", "name a file that kernels were applied to")
    if not path.is_dir():
        raise UsageError(f"{path} does not exist", "name a folder, a file with applied kernels or its package")
    for folder, names, files in os.walk(path):
        if MANIFEST in files and _is_ours(Path(folder, MANIFEST)):
            names.clear()
            yield Path(folder)
        elif "pyvenv.cfg" in files and Path(folder) != path:
            names.clear()
        else:
            names[:] = sorted(name for name in names if name not in _SKIPPED and not name.startswith("."))


def _is_ours(path: Path) -> bool:
    return _schema(path) in (MANIFEST_SCHEMA, OUTSIDE_SCHEMA)


def _schema(path: Path) -> str:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return ""
    return str(document.get("schema", "")) if isinstance(document, dict) else ""


def _read(package: Path) -> Iterator[AppliedClass]:
    data = read_bytes(package / MANIFEST)
    if _schema(package / MANIFEST) == OUTSIDE_SCHEMA:
        outside = decode(data, OutsideManifest)
        for name, module in outside.classes.items():
            yield from _read_class(package, name, outside, None, module)
        return
    manifest = decode(data, Manifest)
    for name in manifest.edits:
        yield from _read_class(package, name, manifest, package.parent / manifest.source, "")


def _read_class(
    package: Path, name: str, manifest: Manifest | OutsideManifest, source: Path | None, module: str
) -> Iterator[AppliedClass]:
    for size in class_folders(package / name):
        yield _read_size(package, name, size, manifest, source, module)


def _read_size(
    package: Path, name: str, size: str, manifest: Manifest | OutsideManifest, source: Path | None, module: str
) -> AppliedClass:
    folder = package / name / size
    try:
        provenance = json.loads(read_bytes(folder / "provenance.json"))
        sources = {name: read_bytes(path).decode() for name, path in source_paths(folder / "sources").items()}
        candidate = Candidate(plan=decode(read_bytes(folder / "plan.json"), Plan), sources=sources)
        known = folder / TASK
        task = decode(read_bytes(known), KernelTask) if known.is_file() else None
        provenance["guard"]["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder} cannot be read: {error}", "apply the kernels again, or undo them") from error
    return AppliedClass(package, name, manifest, source, module, provenance, candidate, task, size)
