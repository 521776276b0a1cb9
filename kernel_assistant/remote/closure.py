"""Which files of a project a module needs: its static import closure, and what `ship` names besides."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from os.path import commonpath
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask
from kernel_assistant.remote.data_files import data_files

MAX_BYTES = 64 << 20
MAX_FILES = 5000
_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Closure:
    """Files below `root`, by relative name. `path` is the task's own file, `search_path` what goes on sys.path, both
    relative too ("." is the root itself). `left_out` was asked for and looks like a secret."""

    root: Path
    files: dict[str, bytes]
    path: str
    search_path: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def find_closure(task: KernelTask, ship: tuple[str, ...] = ()) -> Closure:
    """What `task` needs on another machine. The task's own text counts for its file, saved or not.

    Raises UsageError for a class in site-packages, for a `ship` pattern that does not fit, and for too much.
    """
    path = Path(task.path)
    if any(part in _INSTALLED for part in path.parts):
        raise UsageError(
            f"{path} is an installed package's file, which is not shipped", "name a module of your own that uses it"
        )
    project = _project(path)
    bases = _bases(task, project)
    walk = _Walk(bases)
    walk.begin(path, task.module_name, task.content)
    named, left_out = data_files(project, ship)
    found = {**named, **walk.found}
    root = Path(commonpath([*walk.used, *(str(file.parent) for file in found)]))
    closure = Closure(
        root=root,
        files={file.relative_to(root).as_posix(): content for file, content in sorted(found.items())},
        path=path.relative_to(root).as_posix(),
        search_path=tuple(Path(base).relative_to(root).as_posix() for base in walk.used),
        left_out=left_out,
    )
    _check_size(closure)
    return closure


def _check_size(closure: Closure) -> None:
    total = sum(len(content) for content in closure.files.values())
    if total > MAX_BYTES or len(closure.files) > MAX_FILES:
        largest = max(closure.files, key=lambda name: len(closure.files[name]))
        raise UsageError(
            f"the module needs {len(closure.files)} files, {total >> 20} MiB; at most {MAX_FILES} files and "
            f"{MAX_BYTES >> 20} MiB are shipped (the largest is {largest})",
            "name less in ship, or make large files on the other machine",
        )


def _project(path: Path) -> Path:
    """The nearest folder that looks like a project's root, else the file's own."""
    return next((folder for folder in path.parents if any((folder / name).exists() for name in _MARKERS)), path.parent)


def _bases(task: KernelTask, project: Path) -> tuple[Path, ...]:
    """Folders in which imports are looked up, the worker's own first. The project's root and its `src` stand for an
    editable installation, which the other machine has not got."""
    own = [Path(folder) for folder in task.search_path]
    return tuple(dict.fromkeys([*own, *(folder for folder in (project / "src", project) if folder.is_dir())]))


@dataclass
class _Walk:
    """Follows imports from file to file. `used` are the bases that something was found in, first ones first."""

    bases: tuple[Path, ...]
    found: dict[Path, bytes] = field(default_factory=dict)
    _used: set[Path] = field(default_factory=set)

    @property
    def used(self) -> list[str]:
        return [str(base) for base in self.bases if base in self._used]

    def begin(self, path: Path, module: str, content: str) -> None:
        base = self.bases[0]
        self._used.add(base)
        self.found[path] = content.encode()
        parts = module.split(".")
        self._locate(tuple(parts[:-1]), self.bases[:1])
        self._follow(content.encode(), tuple(parts if path.name == "__init__.py" else parts[:-1]))

    def _follow(self, content: bytes, package: tuple[str, ...]) -> None:
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError):
            return  # importing it will fail there as it does here, and says why
        for name in _imports(tree, package):
            self._locate(name, self.bases)

    def _locate(self, name: tuple[str, ...], bases: tuple[Path, ...]) -> None:
        for base in bases:
            files = _files_of(name, base, strict=base != self.bases[0])
            if files:
                self._used.add(base)
                for file, package in files:
                    self._take(file, package)
                return

    def _take(self, file: Path, package: tuple[str, ...]) -> None:
        if file in self.found:
            return
        try:
            content = file.read_bytes()
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror}", "the module imports it") from error
        self.found[file] = content
        self._follow(content, package)


def _files_of(name: tuple[str, ...], base: Path, *, strict: bool) -> list[tuple[Path, tuple[str, ...]]]:
    """(file, its package) for each step of a dotted name below `base`, as far as it leads.

    `strict` wants a real package or file of that name, and none of the standard library's or torch's names: a folder
    that merely happens to lie in a project's root is nobody's import.
    """
    if not name or (strict and (name[0] in sys.stdlib_module_names or name[0] == "torch")):
        return []
    found: list[tuple[Path, tuple[str, ...]]] = []
    folder = base
    for depth, part in enumerate(name, start=1):
        package, module = folder / part / "__init__.py", folder / f"{part}.py"
        if package.is_file():
            found.append((package, name[:depth]))
        elif module.is_file():
            return [*found, (module, name[: depth - 1])]
        elif strict and depth == 1:
            return []
        folder /= part
        if not folder.is_dir():
            return found
    return found


def _imports(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Absolute dotted names that a file imports, wherever in it; a name imported from a package may be a module."""
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
