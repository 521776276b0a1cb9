"""Applies kernels to a class of an installed library: writes a package to the user's project that puts the kernels into
the class when it is imported.

The library's files do not change. `kernels_for_LIBRARY/` has the same loader and guard as a package beside a user's
file. A second class of the same name in one library gets a package of its own, named after its module.
"""

from __future__ import annotations

import ast
import importlib.resources
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.apply.apply import ApplyResult, check_package, tool_version
from kernel_assistant.apply.diff import unified_diff
from kernel_assistant.apply.edit import Edit, imports, plan_import
from kernel_assistant.apply.files import check_source, read_bytes, write_atomically
from kernel_assistant.apply.package import (
    LOADER_FILES,
    MANIFEST,
    Files,
    changed_files,
    class_files,
    digests,
    manifest_bytes,
    owner,
    packed,
    runtime_files,
)
from kernel_assistant.apply.provenance import AppliedOptions
from kernel_assistant.apply.result import VerifiedResult, read_result
from kernel_assistant.apply.sizes import size_folder, with_others
from kernel_assistant.apply.text import decode_source, parse, split_lines
from kernel_assistant.apply.undo import UndoResult, remove_files
from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.records import decode
from kernel_assistant.records.codec import Record
from kernel_assistant.worker.applied.fingerprint import fingerprint

_PREFIX = "kernels_for_"
_INSTALLED = frozenset(("site-packages", "dist-packages"))
OUTSIDE_SCHEMA = "kernel-assistant/outside/1"


class OutsideManifest(Record, frozen=True, kw_only=True):
    """The record of a package that replaces classes of an installed library. `classes` maps each replaced class to its
    module. `into` are the files that have our import line, relative to the folder that contains the package. `files`
    maps a path in the package to its SHA-256."""

    library: str
    classes: dict[str, str]
    into: tuple[str, ...]
    files: dict[str, str]
    schema: str = OUTSIDE_SCHEMA


@dataclass(frozen=True)
class _Line:
    """The edit that adds or removes our import line in one file: the text before and after it. `data` is the text after
    the edit, encoded as the file is."""

    path: Path
    before: str
    after: str
    data: bytes

    @property
    def diff(self) -> str:
        return unified_diff(self.before, self.after, self.path.name)


def is_installed(path: Path) -> bool:
    """Whether a file belongs to an installed package; such a file must not be edited."""
    return bool(_INSTALLED & set(path.parts))


def import_line(package: Path) -> str:
    """Returns the Python line that imports a package, which puts its kernels into the library's classes."""
    return f"import {package.name}  # noqa: F401"


def apply_outside(
    result_dir: Path | str,
    source: Path,
    project: Path,
    *,
    into: Path | None = None,
    dry_run: bool = False,
    options: AppliedOptions | None = None,
) -> ApplyResult:
    """Writes `kernels_for_LIBRARY/` to the folder `project` for the class of the installed file `source`.

    If that package already replaces another class of the same name, the new package is `kernels_for_MODULE/`, with
    underscores for the module's dots. With `into`, the import line is added to that file. Raises UsageError, with
    nothing changed, if the kernels cannot be applied.
    """
    result = read_result(Path(result_dir))
    module, name = result.task.module_name, result.task.class_name
    library = module.partition(".")[0]
    folder = _package(project.absolute(), name, module)
    known = read_outside(folder)
    _check(result, source, folder, known)
    line = _with_line(into.absolute(), folder) if into is not None else None
    size = size_folder(result, folder)
    own = with_others(class_files(result, options or AppliedOptions(), tool_version(), size), result, folder)
    files = {**_runtime(), **packed(name, own)}
    kept = {} if known is None else {path: one for path, one in known.files.items() if owner(path) != name}
    manifest = _manifest(known, library, {name: module}, line, folder, {**kept, **digests(files)})
    if not dry_run:
        for path, data in files.items():
            write_atomically(folder / path, data)
        write_atomically(folder / MANIFEST, manifest_bytes(manifest))
        if known is not None:
            remove_files(folder, [path for path in known.files if path not in manifest.files])
        if line is not None and line.after != line.before:
            write_atomically(line.path, line.data)
    return ApplyResult(
        source=folder if line is None else line.path,
        package=folder,
        class_name=name,
        edit=Edit(hunks=()),
        diff="" if line is None else line.diff,
        files=tuple(sorted(files)),
        import_line="" if line is not None else import_line(folder),
    )


def undo_outside(folder: Path, class_name: str | None = None, *, dry_run: bool = False) -> UndoResult:
    """Removes the kernels of one class from the package `folder`. Without `class_name`, removes all kernels, the
    package and our import lines. Raises UsageError if there are no such kernels."""
    folder = folder.absolute()
    known = read_outside(folder)
    if known is None or (class_name is not None and class_name not in known.classes):
        raise UsageError(f"{folder.name} replaces no {class_name or 'class'}", "see its manifest.json for what it does")
    classes = tuple(known.classes) if class_name is None else (class_name,)
    rest = {name: module for name, module in known.classes.items() if name not in classes}
    going = [path for path in known.files if not rest or owner(path) in classes]
    changed = set(changed_files(folder, known))
    removed = tuple(path for path in going if path not in changed)
    lines = [] if rest else [one for one in (_without_line(folder.parent / path, folder) for path in known.into) if one]
    if not dry_run:
        for line in lines:
            write_atomically(line.path, line.data)
        if rest:
            files = {path: known.files[path] for path in known.files if path not in going}
            kept = OutsideManifest(library=known.library, classes=rest, into=known.into, files=files)
            write_atomically(folder / MANIFEST, manifest_bytes(kept))
        remove_files(folder, [*removed, *([] if rest else [MANIFEST])])
    return UndoResult(
        source=folder,
        classes=classes,
        restored=not changed & set(going),
        diff="".join(line.diff for line in lines),
        removed=removed,
        kept=tuple(path for path in going if path in changed),
    )


def packages_of(path: Path, class_name: str = "") -> tuple[Path, ...]:
    """Returns the packages that the file `path` imports by a line of ours; they lie beside the file or in a folder
    above it. With `class_name`, returns only packages that replace this class."""
    folders = (folder for parent in path.parents for folder in sorted(parent.glob(f"{_PREFIX}*")))
    return tuple(folder for folder in folders if _is_in(folder, path, class_name))


def replaced_in(projects: Iterable[Path], source: Path) -> dict[str, Path]:
    """Returns class → package for each class of the installed file `source` that has kernels. Packages are searched in
    the folders `projects` and their direct subfolders; packages that cannot be read are skipped."""
    packages: dict[str, Path] = {}
    for project in projects:
        for manifest in sorted((*project.glob(f"{_PREFIX}*/{MANIFEST}"), *project.glob(f"*/{_PREFIX}*/{MANIFEST}"))):
            try:
                known = read_outside(manifest.parent)
            except KernelAssistantError:
                continue
            for name, module in known.classes.items() if known is not None else ():
                if _is_file_of(source, module):
                    packages.setdefault(name, manifest.parent)
    return packages


def path_in_library(path: Path) -> Path:
    """Returns the part of a path below the folder of installed packages, such as `timm/layers/drop.py`."""
    last = max((index for index, part in enumerate(path.parts) if part in _INSTALLED), default=-1)
    return Path(*path.parts[last + 1 :])


def _is_file_of(path: Path, module: str) -> bool:
    """Whether `path`, a file among the installed packages, is the file of the Python module `module`."""
    names = list(path_in_library(path.with_suffix("")).parts)
    return module.split(".") == (names[:-1] if names[-1:] == ["__init__"] else names)


def _is_in(folder: Path, path: Path, class_name: str) -> bool:
    try:
        known = read_outside(folder)
    except UsageError:
        return False
    into = [] if known is None else [(folder.parent / one).resolve() for one in known.into]
    return known is not None and path.resolve() in into and (not class_name or class_name in known.classes)


def read_outside(folder: Path) -> OutsideManifest | None:
    """Returns the manifest of a package with kernels for a library; None if the folder does not exist. Raises
    UsageError if the folder is not such a package."""
    if not folder.exists():
        return None
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder} is in the way: it was not made by kernel-assistant", "move or rename it")
    return decode(read_bytes(folder / MANIFEST), OutsideManifest)


def _package(project: Path, name: str, module: str) -> Path:
    """Returns the folder of the package for a class of an installed module: the package that already replaces this
    class; else that of the library, unless it replaces another class of the same name; else one named after the
    module."""
    own, shared = (project / (_PREFIX + re.sub(r"\W", "_", part)) for part in (module, module.partition(".")[0]))
    replaced = {folder: known.classes.get(name) for folder in (own, shared) if (known := read_outside(folder))}
    there = next((folder for folder, other in replaced.items() if other == module), None)
    return there or (shared if replaced.get(shared) is None else own)


def _check(result: VerifiedResult, source: Path, folder: Path, known: OutsideManifest | None) -> None:
    name = result.task.class_name
    text = decode_source(read_bytes(source), source.name).text
    parse(text, source.name)
    if fingerprint(text, name) != fingerprint(result.task.content, name):
        raise UsageError(f"{name} in {source} has changed since the job", "optimize it again")
    check_package(folder, known, name)


def _manifest(
    known: OutsideManifest | None,
    library: str,
    fresh: dict[str, str],
    line: _Line | None,
    folder: Path,
    files: dict[str, str],
) -> OutsideManifest:
    into = list(known.into) if known else []
    if line is not None:
        into.append(os.path.relpath(line.path, folder.parent))
    classes = {**(known.classes if known else {}), **fresh}
    return OutsideManifest(
        library=library,
        classes=classes,
        into=tuple(dict.fromkeys(into)),
        files={path: one for path, one in files.items() if owner(path) in classes or path in LOADER_FILES},
    )


def _runtime() -> Files:
    own = importlib.resources.files("kernel_assistant.apply") / "template"
    return {**runtime_files(), "__init__.py": (own / "outside.py.txt").read_bytes()}


def _with_line(path: Path, package: Path) -> _Line:
    check_source(path)
    source = decode_source(read_bytes(path), path.name)
    after = plan_import(source.text, import_line(package), name=path.name).apply(source.text)
    return _Line(path, source.text, after, source.encode(after))


def _without_line(path: Path, package: Path) -> _Line | None:
    """Returns the edit that removes our import line from a file; None if the file does not have the line."""
    if not path.is_file():
        return None
    source = decode_source(read_bytes(path), path.name)
    line = import_line(package)
    lines = split_lines(source.text)
    try:
        nodes = [node for node in ast.parse(source.text).body if imports(node, line)]
    except (SyntaxError, ValueError):
        nodes = []
    # A formatter may have moved the comment; a line that holds more than the import is the user's to mend.
    bare = line.partition("#")[0].strip()
    ours = {node.lineno - 1 for node in nodes if lines[node.lineno - 1].partition("#")[0].strip() == bare}
    ours |= {index for index, text in enumerate(lines) if text.strip() == line}
    after = "".join(text for index, text in enumerate(lines) if index not in ours)
    return _Line(path, source.text, after, source.encode(after)) if ours else None
