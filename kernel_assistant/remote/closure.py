"""Finds the files of a project that a module needs: files that it imports statically, directly or indirectly, and
files that the setting `ship` names.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask
from kernel_assistant.remote.data_files import data_files

MAX_BYTES = 256 << 20
MAX_FILES = 5000
_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
_INSTALLED = ("site-packages", "dist-packages")


#: Where a scan's recording of the module goes, in the shipped folder.
_RECORDING = ".recording"


@dataclass(frozen=True)
class SourceClosure:
    """The files that a task needs, by name relative to `root`. `path` is the task's own file, `search_path` are the
    folders for sys.path, `recording` is the folder of the recording; all are relative to `root` ("." is `root` itself).
    `path` is "" if the class is in an installed package, `recording` is "" if there is none. `left_out` are files that
    the setting `ship` names but that look like secrets."""

    root: Path
    files: dict[str, bytes]
    path: str
    search_path: tuple[str, ...]
    recording: str
    left_out: tuple[str, ...] = ()


def find_closure(task: KernelTask, ship: tuple[str, ...] = ()) -> SourceClosure:
    """Returns the files that `task` needs on another machine: files that its module imports, and files that the
    patterns `ship` name. The task's own file has the content in the task, which may have unsaved changes.

    Raises UsageError for a file in site-packages (unless `task.installed`), for a `ship` pattern that does not fit, and
    for too many or too large files.
    """
    path = Path(task.path)
    if any(part in _INSTALLED for part in path.parts) and not task.installed:
        raise UsageError(
            f"{path} is an installed package's file, which is not shipped", "name a module of your own that uses it"
        )
    project = _project(path)
    own = tuple(Path(folder) for folder in task.search_path)
    walk = _ImportWalk(own, project)
    if not task.installed:
        walk.begin(path, task.module_name, task.content)
    named, left_out = data_files(project, ship) if not task.installed else ({}, ())
    contents = {**named, **walk.contents}
    root = Path(commonpath([*walk.used, *(str(file.parent) for file in contents)])) if contents else project
    files = {file.relative_to(root).as_posix(): content for file, content in sorted(contents.items())}
    closure = SourceClosure(
        root=root,
        files={**files, **_recorded(task.recording)},
        path="" if task.installed else path.relative_to(root).as_posix(),
        search_path=tuple(Path(base).relative_to(root).as_posix() for base in walk.used),
        recording=_RECORDING if task.recording else "",
        left_out=left_out,
    )
    _check_size(closure)
    return closure


def _check_size(closure: SourceClosure) -> None:
    total = sum(len(content) for content in closure.files.values())
    if total > MAX_BYTES or len(closure.files) > MAX_FILES:
        largest = max(closure.files, key=lambda name: len(closure.files[name]))
        raise UsageError(
            f"the module needs {len(closure.files)} files, {total >> 20} MiB; at most {MAX_FILES} files and "
            f"{MAX_BYTES >> 20} MiB are shipped (the largest is {largest})",
            "name less in ship, or make large files on the other machine",
        )


def _project(path: Path) -> Path:
    """Returns the nearest folder above `path` that looks like a project's root, else the folder of the file."""
    return next((folder for folder in path.parents if any((folder / name).exists() for name in _MARKERS)), path.parent)


def _recorded(folder: str) -> dict[str, bytes]:
    if not folder:
        return {}
    files = [path for path in sorted(Path(folder).iterdir()) if path.is_file()]
    return {f"{_RECORDING}/{path.name}": path.read_bytes() for path in files}


class _ImportWalk:
    """Follows imports from file to file. Each name is looked up in the worker's own folders first, then in the
    project's `src` and root, because the remote machine does not have the project's editable installation.

    `used` are the folders in which an imported file was found, in the order of the search.
    """

    def __init__(self, own: tuple[Path, ...], project: Path) -> None:
        self._own = own
        self._bases = tuple(dict.fromkeys([*own, *(one for one in (project / "src", project) if one.is_dir())]))
        self._used: set[Path] = set()
        self.contents: dict[Path, bytes] = {}

    @property
    def used(self) -> list[str]:
        return [str(base) for base in self._bases if base in self._used]

    def begin(self, path: Path, module: str, content: str) -> None:
        parts = tuple(module.split("."))
        above = [base for base in self._own if path.is_relative_to(base)]
        base = next((one for one in above if path in dict(_files_of(parts, one, strict=False))), above[0])
        self._used.add(base)
        self.contents[path] = content.encode()
        self._locate(parts[:-1], (base,))
        self._follow(content.encode(), parts if path.name == "__init__.py" else parts[:-1])

    def _follow(self, content: bytes, package: tuple[str, ...]) -> None:
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError):
            return  # its import will fail on the remote machine with a message, as it does here
        for name in _imports(tree, package):
            self._locate(name, self._bases)

    def _locate(self, name: tuple[str, ...], bases: tuple[Path, ...]) -> None:
        for base in bases:
            files = _files_of(name, base, strict=base not in self._own)
            if files:
                self._used.add(base)
                for file, package in files:
                    self._take(file, package)
                return

    def _take(self, file: Path, package: tuple[str, ...]) -> None:
        if file in self.contents:
            return
        try:
            content = file.read_bytes()
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror}", "the module imports it") from error
        self.contents[file] = content
        self._follow(content, package)


def _files_of(name: tuple[str, ...], base: Path, *, strict: bool) -> list[tuple[Path, tuple[str, ...]]]:
    """Returns a pair (file, its package) for each part of a dotted name that exists below `base`.

    With `strict` there must be a real package or file of that name, and the name must not be a module of the standard
    library or torch: a folder in a project's root may have the name of a package by chance.
    """
    if not name or (strict and (name[0] in sys.stdlib_module_names or name[0] == "torch")):
        return []
    files: list[tuple[Path, tuple[str, ...]]] = []
    folder = base
    for depth, part in enumerate(name, start=1):
        package, module = folder / part / "__init__.py", folder / f"{part}.py"
        if package.is_file():
            files.append((package, name[:depth]))
        elif module.is_file():
            return [*files, (module, name[: depth - 1])]
        elif strict and depth == 1:
            return []
        folder /= part
        if not folder.is_dir():
            return files
    return files


def _imports(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yields the absolute dotted names, as tuples, that a file imports anywhere in its text. For `from a import b`,
    `a.b` is included, because `b` may be a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (tuple(alias.name.split(".")) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = package[: len(package) - level + 1] if level else ()
                if level > len(package):
                    continue  # beyond the top-level package: Python refuses it as well
                origin = (*start, *(module.split(".") if module else ()))
                yield origin
                yield from ((*origin, alias.name) for alias in names)
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if _is_import_call(node.func):
                if name and not name.startswith("."):
                    yield tuple(name.split("."))


def _is_import_call(function: ast.expr) -> bool:
    return (isinstance(function, ast.Attribute) and function.attr == "import_module") or (
        isinstance(function, ast.Name) and function.id in ("import_module", "__import__")
    )
