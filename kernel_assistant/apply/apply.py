"""Applies the result of a job to the user's file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernel_assistant.apply.diff import unified_diff
from kernel_assistant.apply.edit import BLOCK, IMPORT_LINE, Edit, decorator_line, has_import, plan_edit
from kernel_assistant.apply.files import check_source, digest, read_bytes, write_atomically
from kernel_assistant.apply.package import (
    LOADER_FILES,
    MANIFEST,
    Files,
    HasFiles,
    Manifest,
    changed_files,
    class_files,
    digests,
    manifest_bytes,
    owner,
    package_name,
    packed,
    read_manifest,
    runtime_files,
)
from kernel_assistant.apply.provenance import AppliedOptions
from kernel_assistant.apply.result import VerifiedResult, read_result
from kernel_assistant.apply.sizes import size_folder, with_others
from kernel_assistant.apply.takeback import decorated_classes, is_current, take_back
from kernel_assistant.apply.text import SourceText, decode_source, parse
from kernel_assistant.apply.turn import turn_in
from kernel_assistant.apply.undo import remove_files
from kernel_assistant.errors import KernelAssistantError, UsageError
from kernel_assistant.worker.applied.fingerprint import fingerprint


@dataclass(frozen=True)
class ApplyResult:
    """What `apply_result` wrote or, with `dry_run`, would write. `files` are the files of the class, and those of
    the loader, which loads the kernels in the user's program, as paths relative to the folder `package`. `diff` shows
    the change of the user's file.

    `import_line` is the line that the user has to add to a file, if the class is of an installed library and no file
    was edited; else "". `text` is the user's whole file with our lines.
    """

    source: Path
    package: Path
    class_name: str
    edit: Edit
    diff: str
    files: tuple[str, ...]
    import_line: str = ""
    text: str = ""


@dataclass(frozen=True)
class _Change:
    path: Path
    folder: Path
    source: SourceText
    text: str
    files: Files
    manifest: Manifest
    class_name: str
    edit: Edit


def apply_result(
    result_dir: Path | str,
    source_path: Path | str,
    *,
    dry_run: bool = False,
    options: AppliedOptions | None = None,
    text: str | None = None,
) -> ApplyResult:
    """Writes `STEM_kernels/` beside the file `source_path`, and adds two things to this file: the lines that load the
    kernels, and the decorator of the class.

    The package is written first, so that the file never uses kernels that do not exist. If the class has kernels
    already, the new ones replace them, also those that older versions applied. `text` is the file as it is in an
    editor: then only the package is written, and the caller puts `ApplyResult.text` into the editor. Raises UsageError,
    with nothing changed, if the kernels cannot be applied.
    """
    path = Path(source_path).absolute()
    with turn_in(path.parent):
        change = _plan(read_result(Path(result_dir)), path, options or AppliedOptions(), text)
        if not dry_run:
            _write(change, with_source=text is None)
    return ApplyResult(
        source=change.path,
        package=change.folder,
        class_name=change.class_name,
        edit=change.edit,
        diff=unified_diff(change.source.text, change.text, change.path.name),
        files=tuple(sorted(change.files)),
        text=change.text,
    )


def _plan(result: VerifiedResult, path: Path, options: AppliedOptions, buffer: str | None) -> _Change:
    check_source(path)
    folder = path.parent / package_name(path.stem)
    class_name = result.task.class_name
    data = read_bytes(path)
    source = decode_source(data, path.name)
    if buffer is not None:
        source = replace(source, text=buffer)
    known = read_manifest(folder)
    _check_unchanged(result, source.text, path.name)
    check_package(folder, known, class_name)
    own_import = known.own_import if known else _own_import(source.text, class_name, path.name)
    bare = take_back(source.text, class_name, Edit(hunks=()), IMPORT_LINE if own_import else None)
    edit = plan_edit(bare, class_name, BLOCK, decorator_line(class_name), name=path.name)
    text = source.text if is_current(source.text, class_name) else edit.apply(bare)
    size = size_folder(result, folder)
    own = with_others(class_files(result, options, tool_version(), size), result, folder)
    files = {**runtime_files(), **packed(class_name, own)}
    kept = {} if known is None else {name: one for name, one in known.files.items() if owner(name) != class_name}
    edits = {**(known.edits if known else {}), class_name: edit}
    manifest = _manifest(path, source, text, {**kept, **digests(files)}, edits, own_import)
    return _Change(path, folder, source, text, files, manifest, class_name, edit)


def _manifest(
    path: Path, source: SourceText, text: str, files: dict[str, str], edits: dict[str, Edit], own_import: bool
) -> Manifest:
    bare = text
    for name, one in edits.items():
        bare = take_back(bare, name, one, IMPORT_LINE if own_import else None)
    return Manifest(
        source=path.name,
        before=digest(source.encode(bare)),
        after=digest(source.encode(text)),
        own_import=own_import,
        edits=edits,
        files={name: one for name, one in files.items() if owner(name) in edits or name in LOADER_FILES},
    )


def _own_import(text: str, class_name: str, name: str) -> bool:
    """Whether this tool added the import `IMPORT_LINE` to the file, or would have to. False if the user's file has the
    same import for a purpose of its own."""
    return class_name in decorated_classes(text) or not has_import(parse(text, name), IMPORT_LINE)


def _check_unchanged(result: VerifiedResult, text: str, name: str) -> None:
    class_name = result.task.class_name
    parse(text, name)
    now, then = (fingerprint(one, class_name) for one in (text, result.task.content))
    if now and now != then:
        raise UsageError(f"{class_name} in {name} has changed since the job", "optimize it again")


def check_package(folder: Path, known: HasFiles | None, class_name: str) -> None:
    """Raises UsageError if the user changed a file of the class in the package by hand, because applying would
    overwrite it. `known` is the package's manifest; None means that there is nothing to check."""
    changed = changed_files(folder, known, class_name) if known else []
    if changed:
        raise UsageError(
            f"{folder.name}/{changed[0]} was changed by hand and would be overwritten", "move it away, or undo first"
        )


def _write(change: _Change, *, with_source: bool) -> None:
    old = read_manifest(change.folder)
    try:
        for name, data in change.files.items():
            write_atomically(change.folder / name, data)
        write_atomically(change.folder / MANIFEST, manifest_bytes(change.manifest))
        if with_source and change.text != change.source.text:
            write_atomically(change.path, change.source.encode(change.text))
    except KernelAssistantError:
        if old is None:
            remove_files(change.folder, [*change.files, MANIFEST])
        raise
    if old is not None:
        remove_files(change.folder, [name for name in old.files if name not in change.manifest.files])


def tool_version() -> str:
    try:
        return version("kernel-assistant")
    except PackageNotFoundError:
        return "unknown"
