"""Kernels for a class of an installed library: a package in the project puts them in when it is imported.

The library's files are not touched. `kernels_for_LIBRARY/` has the loader and the guard of the ordinary form.
"""

from __future__ import annotations

import ast
import importlib.resources
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.apply.apply import Applied, tool_version
from kernel_assistant.apply.diff import unified_diff
from kernel_assistant.apply.edit import Edit, imports, plan_import
from kernel_assistant.apply.files import check_source, read_bytes, write_atomically
from kernel_assistant.apply.package import (
    MANIFEST,
    RUNTIME,
    Files,
    changed_files,
    class_files,
    digests,
    runtime_files,
)
from kernel_assistant.apply.provenance import Options
from kernel_assistant.apply.result import Result, read_result
from kernel_assistant.apply.sizes import remaining, size_folder
from kernel_assistant.apply.text import decode_source, parse, split_lines
from kernel_assistant.apply.undo import Undone, remove_files
from kernel_assistant.errors import UsageError
from kernel_assistant.records import decode, encode
from kernel_assistant.records.codec import Record
from kernel_assistant.worker.applied.fingerprint import fingerprint

OUTSIDE_SCHEMA = "kernel-assistant/outside/1"


class OutsideManifest(Record, frozen=True, kw_only=True):
    """`classes` maps a class to its module, `into` are the files that have our import line, relative to the package's
    folder, `files` path in the package → SHA-256."""

    library: str
    classes: dict[str, str]
    into: tuple[str, ...]
    files: dict[str, str]
    schema: str = OUTSIDE_SCHEMA


@dataclass(frozen=True)
class _Line:
    """The edit of one file: its text before and after."""

    path: Path
    before: str
    after: str
    data: bytes

    @property
    def diff(self) -> str:
        return unified_diff(self.before, self.after, self.path.name)


def is_installed(path: Path) -> bool:
    """Whether a file belongs to an installed package, so that it is not the user's to edit."""
    return bool({"site-packages", "dist-packages"} & set(path.parts))


def import_line(library: str) -> str:
    """The line that puts the kernels in."""
    return f"import {_package_name(library)}  # noqa: F401"


def apply_outside(
    result_dir: Path | str,
    source: Path,
    project: Path,
    *,
    into: Path | None = None,
    dry_run: bool = False,
    options: Options | None = None,
) -> Applied:
    """Write `kernels_for_LIBRARY/` into the folder `project` for the class of the installed file `source`.

    With `into` the import line is put into that file. Raises UsageError, with everything as it was, where that cannot
    be done.
    """
    result = read_result(Path(result_dir))
    module, name = result.task.module_name, result.task.class_name
    library = module.partition(".")[0]
    folder = project.absolute() / _package_name(library)
    known = read_outside(folder)
    _check(result, source, folder, known)
    line = _with_line(into.absolute(), library) if into is not None else None
    size = size_folder(result, folder)
    files = {**_runtime(), **class_files(result, options or Options(), tool_version(), size)}
    now = fingerprint(result.task.content, name)
    kept = {} if known is None else remaining(known.files, name, size, folder, now)
    manifest = _manifest(known, library, {name: module}, line, folder, {**kept, **digests(files)})
    if not dry_run:
        for path, data in files.items():
            write_atomically(folder / path, data)
        write_atomically(folder / MANIFEST, _pretty(manifest))
        if known is not None:
            remove_files(folder, [path for path in known.files if path not in manifest.files])
        if line is not None and line.after != line.before:
            write_atomically(line.path, line.data)
    return Applied(
        source=folder if line is None else line.path,
        package=folder,
        class_name=name,
        edit=Edit(hunks=()),
        diff="" if line is None else line.diff,
        files=tuple(sorted(files)),
        import_line="" if line is not None else import_line(library),
    )


def undo_outside(folder: Path, class_name: str | None = None, *, dry_run: bool = False) -> Undone:
    """Take one class, or all with the package and our import lines, away again. Raises UsageError."""
    folder = folder.absolute()
    known = read_outside(folder)
    if known is None or (class_name is not None and class_name not in known.classes):
        raise UsageError(f"{folder.name} replaces no {class_name or 'class'}", "see its manifest.json for what it does")
    classes = tuple(known.classes) if class_name is None else (class_name,)
    rest = {name: module for name, module in known.classes.items() if name not in classes}
    going = [path for path in known.files if not rest or path.partition("/")[0] in classes]
    changed = set(changed_files(folder, known))
    removed = tuple(path for path in going if path not in changed)
    lines = [] if rest else [one for one in (_without_line(folder.parent / path, known) for path in known.into) if one]
    if not dry_run:
        for line in lines:
            write_atomically(line.path, line.data)
        if rest:
            files = {path: known.files[path] for path in known.files if path not in going}
            kept = OutsideManifest(library=known.library, classes=rest, into=known.into, files=files)
            write_atomically(folder / MANIFEST, _pretty(kept))
        remove_files(folder, [*removed, *([] if rest else [MANIFEST])])
    return Undone(
        source=folder,
        classes=classes,
        restored=not changed & set(going),
        diff="".join(line.diff for line in lines),
        removed=removed,
        kept=tuple(path for path in going if path in changed),
    )


def read_outside(folder: Path) -> OutsideManifest | None:
    """The manifest of such a package, None where there is no folder. Raises UsageError for anything else there."""
    if not folder.exists():
        return None
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder} is in the way: it was not made by kernel-assistant", "move or rename it")
    return decode(read_bytes(folder / MANIFEST), OutsideManifest)


def _package_name(library: str) -> str:
    return "kernels_for_" + re.sub(r"\W", "_", library)


def _check(result: Result, source: Path, folder: Path, known: OutsideManifest | None) -> None:
    name, module = result.task.class_name, result.task.module_name
    text = decode_source(read_bytes(source), source.name).text
    parse(text, source.name)
    if fingerprint(text, name) != fingerprint(result.task.content, name):
        raise UsageError(f"{name} in {source} has changed since the job", "optimize it again")
    other = known.classes.get(name, module) if known else module
    if other != module:
        raise UsageError(f"{folder.name} replaces {name} of {other} already", f"undo it first: {folder.name}:{name}")
    changed = changed_files(folder, known, name) if known else []
    if changed:
        raise UsageError(
            f"{folder.name}/{changed[0]} was changed by hand and would be overwritten", "move it away, or undo first"
        )


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
    owners = {*classes, RUNTIME}
    return OutsideManifest(
        library=library,
        classes=classes,
        into=tuple(dict.fromkeys(into)),
        files={path: one for path, one in files.items() if "/" not in path or path.partition("/")[0] in owners},
    )


def _runtime() -> Files:
    own = importlib.resources.files("kernel_assistant.apply") / "template"
    return {**runtime_files(), "__init__.py": (own / "outside.py.txt").read_bytes()}


def _with_line(path: Path, library: str) -> _Line:
    check_source(path)
    source = decode_source(read_bytes(path), path.name)
    after = plan_import(source.text, import_line(library), name=path.name).apply(source.text)
    return _Line(path, source.text, after, source.encode(after))


def _without_line(path: Path, known: OutsideManifest) -> _Line | None:
    """The file without our line; None where it is not there any more."""
    if not path.is_file():
        return None
    source = decode_source(read_bytes(path), path.name)
    line = import_line(known.library)
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


def _pretty(manifest: OutsideManifest) -> bytes:
    return (json.dumps(json.loads(encode(manifest)), indent=1, ensure_ascii=False) + "\n").encode()
