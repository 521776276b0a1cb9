"""Finds and reads the applied packages of a project, and compares them with the user's files to which they belong."""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_assistant.apply.edit import IMPORT_LINE, Edit
from kernel_assistant.apply.files import read_bytes
from kernel_assistant.apply.outside import OUTSIDE_SCHEMA, OutsideManifest
from kernel_assistant.apply.package import MANIFEST, MANIFEST_SCHEMA, TASK, Manifest, changed_files, owner, package_name
from kernel_assistant.apply.takeback import decorated_classes, take_back
from kernel_assistant.apply.text import decode_source
from kernel_assistant.errors import UsageError
from kernel_assistant.records import Candidate, KernelTask, Plan, decode
from kernel_assistant.source.reach import reachable
from kernel_assistant.worker.applied.fingerprint import fingerprint
from kernel_assistant.worker.applied.parts import ARCHIVE, BINARY_SUFFIXES, Parts, sizes_of
from kernel_assistant.worker.applied.report import PROGRAM, VARIABLE, file_name

#: A syntax tree takes a hundred times the memory of its text: only one is built at a time.
_parsing = threading.Lock()
#: Suffixes of files that no editor or formatter has a reason to change.
BINARIES = (*BINARY_SUFFIXES, ARCHIVE)
_SKIPPED = frozenset(("node_modules", "__pycache__", "site-packages", "dist-packages"))


@dataclass(frozen=True)
class AppliedClass:
    """The kernels of one class in an applied package (the folder of kernels beside the user's file), for one size:
    instances with the same parameter shapes, attributes and tensor layouts (`apply/sizes.py`).

    `source` is the user's file beside the package. For a class of an installed library `source` is None, and `module`
    is the module of the class.
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
        """A path that identifies the applied class and the size of its instances; it is a key, and the folder need not
        exist."""
        return self.package / self.class_name / self.size

    def read(self, name: str) -> bytes:
        """Returns the content of the file `name` of this class and size, such as a binary. Raises OSError or ValueError
        if the file is missing or damaged."""
        return Parts(str(self.package), self.class_name).read(f"{self.size}/{name}" if self.size else name)

    @property
    def name(self) -> str:
        """The name of the class for messages, such as `model.py:Gate` or `library.layers:Gate`."""
        location = f"{self.module or self.source or self.package}:{self.class_name}"
        return f"{location}/{self.size}" if self.size else location

    @property
    def guard(self) -> dict[str, Any]:
        return dict(self.provenance["guard"])

    def changed(self) -> list[str]:
        """Returns the files of this class and of the package's loader that were changed or deleted since this tool
        wrote them, as paths in the package."""
        served = self.manifest.edits if isinstance(self.manifest, Manifest) else self.manifest.classes
        others = {name for name in served if name != self.class_name}
        changed = [*changed_files(self.package, self.manifest), *self._missing()]
        return [name for name in changed if owner(name) not in others]

    def _missing(self) -> list[str]:
        return [name for name in self.manifest.files if not (self.package / name).is_file()]


def find_applied(paths: Iterable[Path]) -> list[AppliedClass]:
    """Returns every applied class at or below `paths`, with one entry for each size. A path is a package (a folder of
    kernels), a file that has a package beside it, or a folder to search.

    Virtual environments and hidden folders below a path are skipped. Raises UsageError if a path does not exist or a
    package cannot be read.
    """
    packages: dict[Path, Path] = {}
    for path in paths:
        for package in _packages(path.absolute()):
            packages.setdefault(package.resolve(), package)
    return [one for package in packages.values() for one in _read(package)]


def reference_text(applied: AppliedClass, text: str) -> str:
    """Returns `text` (the content of the file) without the lines that this tool added. The result is the original code,
    with which the kernels have to agree."""
    if not isinstance(applied.manifest, Manifest):
        return text
    for name in dict.fromkeys([*applied.manifest.edits, *decorated_classes(text)]):
        edit = applied.manifest.edits.get(name, Edit(hunks=()))
        text = take_back(text, name, edit, IMPORT_LINE if applied.manifest.own_import else None)
    return text


def staleness(applied: AppliedClass, text: str) -> str:
    """Returns the reason why the kernels no longer fit the class in `text`, the content of its file; "" if they fit."""
    try:
        now = fingerprint(text, applied.class_name)
        served = isinstance(applied.manifest, OutsideManifest) or applied.class_name in decorated_classes(text)
    except (SyntaxError, ValueError) as error:
        return f"the file is not Python any more: {error}"
    if now and not served:
        return "the file does not name its kernels any more (the decorator is gone)"
    return _difference(applied, now)


def staleness_while_typed(applied: AppliedClass, text: str) -> str:
    """Returns the same as `staleness` for text that the user is editing, but "" if it has a syntax error. Does not
    check that the class has our decorator."""
    try:
        with _parsing:
            return _difference(applied, _fingerprint(text, applied.class_name))
    except (SyntaxError, ValueError):
        return ""


def _difference(applied: AppliedClass, now: str) -> str:
    if not now:
        return f"the file has no class {applied.class_name} any more"
    if now != applied.guard["fingerprint"]:
        return f"{applied.class_name} has been edited since its kernels were verified"
    return ""


def damage(applied: AppliedClass) -> str:
    """Returns the reason why the kernels cannot run, a message about a missing file or a changed binary; "" if they can
    run."""
    changed = applied.changed()
    lost = [name for name in changed if not (applied.package / name).is_file()]
    if lost:
        return f"{applied.package.name} lacks {lost[0]}; the original runs"
    broken = [name for name in changed if name.endswith(BINARIES)]
    return f"{applied.package.name}/{broken[0]} is damaged; the original runs" if broken else ""


def report_name(package: Path) -> str:
    """Returns the name of the file in which the kernels of `package` count the calls that they run
    (`worker/applied/report.py`)."""
    return file_name(os.path.realpath(package))


def counting(folder: str) -> dict[str, str]:
    """Returns environment variables that make a program write to `folder` how many calls its applied kernels ran. All
    processes with these variables are counted as one program."""
    return {VARIABLE: folder, PROGRAM: f"{os.getpid()} {time.time_ns()}"}


def is_same_class(text: str, then: str, class_name: str) -> bool:
    """Whether a class computes the same in `text` and `then`, two versions of its file. True also if one of them has a
    syntax error."""
    try:
        with _parsing:
            return text == then or _fingerprint(text, class_name) == _fingerprint(then, class_name)
    except (SyntaxError, ValueError):
        return True


@functools.lru_cache(maxsize=4)
def _fingerprint(text: str, class_name: str) -> str:
    """Returns the fingerprint (a hash of the code) of a class in a text. It is cached, because an editor's server needs
    it often. Only the parts that the class uses are parsed: parsing a whole text of 5,000 lines takes 0.1 s, and memory
    that the process does not give back."""
    try:
        return fingerprint(reachable(text, class_name), class_name)
    except SyntaxError:
        return fingerprint(text, class_name)


def source_text(path: Path) -> str:
    """Returns the text of a Python file, decoded with the encoding that the file declares. Raises UsageError if it
    cannot be read."""
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
        yield from _read_class(package, name, manifest, _source_of(package, manifest), "")


def _source_of(package: Path, manifest: Manifest) -> Path:
    """Returns the source file of a package: the file beside it after which it is named now or, if there is none, the
    file that the manifest names. Both may have been renamed since then."""
    beside = package.parent / f"{package.name.removesuffix(package_name(''))}.py"
    return beside if beside.is_file() else package.parent / manifest.source


def _read_class(
    package: Path, name: str, manifest: Manifest | OutsideManifest, source: Path | None, module: str
) -> Iterator[AppliedClass]:
    parts = Parts(str(package), name)
    try:
        contents = [(size, *_read_size(parts, size)) for size in sizes_of(parts)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{name} in {package} cannot be read: {error}", "apply the kernels again, or undo them"
        ) from error
    for size, provenance, candidate, task in contents:
        yield AppliedClass(package, name, manifest, source, module, provenance, candidate, task, size.rstrip("/"))


def _read_size(parts: Parts, size: str) -> tuple[dict[str, Any], Candidate, KernelTask | None]:
    provenance = json.loads(parts.read(f"{size}provenance.json"))
    provenance["guard"]["fingerprint"]
    names = parts.names()
    head = f"{size}sources/"
    sources = {name[len(head) :]: parts.read(name).decode() for name in names if name.startswith(head)}
    candidate = Candidate(plan=decode(parts.read(f"{size}plan.json"), Plan), sources=sources)
    known = f"{size}{TASK}"
    return provenance, candidate, decode(parts.read(known), KernelTask) if known in names else None
