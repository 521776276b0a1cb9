"""Removes applied kernels, with the information in the package itself, because the job may be deleted."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_assistant.apply.diff import unified_diff
from kernel_assistant.apply.edit import IMPORT_LINE, Edit
from kernel_assistant.apply.files import check_source, digest, read_bytes, write_atomically
from kernel_assistant.apply.package import (
    MANIFEST,
    Manifest,
    changed_files,
    manifest_bytes,
    owner,
    package_name,
    read_manifest,
)
from kernel_assistant.apply.takeback import decorated_classes, take_back
from kernel_assistant.apply.text import decode_source
from kernel_assistant.apply.turn import turn_in
from kernel_assistant.errors import UsageError


@dataclass(frozen=True)
class UndoResult:
    """The result of undoing. `restored` says whether the file is again, byte for byte, what it was before applying.
    `kept` are files that stay in the package because they were changed by hand or are not ours. `text` is the whole
    file without our lines."""

    source: Path
    classes: tuple[str, ...]
    restored: bool
    diff: str
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    text: str = ""


def undo(
    source_path: Path | str, class_name: str | None = None, *, dry_run: bool = False, text: str | None = None
) -> UndoResult:
    """Removes our lines from the file and the package beside it, for one class or, if `class_name` is None, for all.

    Other changes that were made to the file since then stay. `text` is the file as it is in an editor: then nothing on
    disk changes, and the caller puts `UndoResult.text` into the editor, saves, and undoes again to remove the package.
    Raises UsageError if there is nothing to undo.
    """
    path = Path(source_path).absolute()
    with turn_in(path.parent):
        return _undo(path, class_name, dry_run or text is not None, text)


def _undo(path: Path, class_name: str | None, dry_run: bool, text: str | None) -> UndoResult:
    folder = path.parent / package_name(path.stem)
    manifest = read_manifest(folder)
    data = read_bytes(path) if path.exists() else b""
    source = decode_source(data, path.name)
    if text is not None:
        source = replace(source, text=text)
        data = source.encode(text)
    classes = _classes(source.text, manifest, class_name, path.name)
    bare = _without(source.text, classes, manifest)
    rest = _rest(manifest, classes, source.encode(bare))
    if bare != source.text and not dry_run:
        check_source(path)
        write_atomically(path, source.encode(bare))
    removed, kept = _clear(folder, manifest, rest, classes, dry_run)
    before = manifest is not None and digest(data) == manifest.after and rest is None
    return UndoResult(
        source=path,
        classes=classes,
        restored=before and manifest is not None and digest(source.encode(bare)) == manifest.before,
        diff=unified_diff(source.text, bare, path.name),
        removed=removed,
        kept=kept,
        text=bare,
    )


def _classes(text: str, manifest: Manifest | None, class_name: str | None, name: str) -> tuple[str, ...]:
    try:
        decorated = decorated_classes(text)
    except (SyntaxError, ValueError):
        decorated = []
    known = dict.fromkeys([*(manifest.edits if manifest else ()), *decorated])
    if class_name is not None and class_name not in known:
        raise UsageError(
            f"{class_name} in {name} has no kernels to take back", "see which classes have: " + _list(known)
        )
    if not known:
        raise UsageError(f"{name} has no kernels to take back", "it is as it was, or the package was moved")
    return tuple(known) if class_name is None else (class_name,)


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _without(text: str, classes: tuple[str, ...], manifest: Manifest | None) -> str:
    own_import = manifest is None or manifest.own_import
    for name in reversed(classes):
        edit = manifest.edits.get(name, Edit(hunks=())) if manifest else Edit(hunks=())
        text = take_back(text, name, edit, IMPORT_LINE if own_import else None)
    return text


def _rest(manifest: Manifest | None, classes: tuple[str, ...], data: bytes) -> Manifest | None:
    """Returns the manifest without `classes`; None if no class remains. `data` is the user's file after undoing."""
    if manifest is None:
        return None
    edits = {name: edit for name, edit in manifest.edits.items() if name not in classes}
    if not edits:
        return None
    files = {name: known for name, known in manifest.files.items() if owner(name) not in classes}
    return Manifest(
        source=manifest.source,
        before=manifest.before,
        after=digest(data),
        own_import=manifest.own_import,
        edits=edits,
        files=files,
    )


def _clear(
    folder: Path, manifest: Manifest | None, rest: Manifest | None, classes: tuple[str, ...], dry_run: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Removes the files of the package that `rest`, the new manifest (None: no class remains), does not list. Returns
    the names of the removed files, and of those that stay because they were changed by hand or are not ours. With
    `dry_run`, removes nothing."""
    if manifest is None:
        return (), ()
    changed = set(changed_files(folder, manifest))
    going = [name for name in manifest.files if rest is None or name not in rest.files]
    removed = [name for name in going if name not in changed]
    if dry_run:
        return tuple(removed), tuple(name for name in going if name in changed)
    if rest is None:
        remove_files(folder, [*removed, MANIFEST])
        return tuple(removed), _left(folder)
    write_atomically(folder / MANIFEST, manifest_bytes(rest))
    remove_files(folder, removed)
    left = {name for one in classes for name in _left(folder / one, folder)}
    return tuple(removed), tuple(sorted(left | {name for name in going if name in changed}))


def _left(folder: Path, root: Path | None = None) -> tuple[str, ...]:
    if not folder.exists():
        return ()
    return tuple(str(path.relative_to(root or folder)) for path in sorted(folder.rglob("*")) if path.is_file())


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Removes the files `names` of the package, then folders that are empty now or contain only `__pycache__`."""
    parents = {folder}
    for name in names:
        path = folder / name
        path.unlink(missing_ok=True)
        parents.update(parent for parent in path.parents if folder in parent.parents)
    for parent in sorted(parents, key=lambda one: len(one.parts), reverse=True):
        if parent.is_dir() and all(entry.name == "__pycache__" for entry in parent.iterdir()):
            shutil.rmtree(parent / "__pycache__", ignore_errors=True)
            parent.rmdir()
