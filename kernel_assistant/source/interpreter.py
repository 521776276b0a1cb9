"""Finds the Python interpreter for the user's module: the first one with torch where projects usually have one."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.errors import MissingError, UsageError

MINIMUM_TORCH = (2, 9)
MINIMUM_PYTHON = (3, 10)

# Finds torch's version without importing it, which takes seconds: from its metadata, else from its version file.
_PROBE = """
import importlib.metadata as metadata, importlib.util as util, json, os, re, sys
torch = None
try:
    torch = metadata.version("torch")
except metadata.PackageNotFoundError:
    spec = util.find_spec("torch")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = os.path.join(folder, "version.py")
        match = re.search("__version__ = ['\\"]([^'\\"]+)", open(file).read()) if os.path.exists(file) else None
        torch = match.group(1) if match else None
print(json.dumps({"version": list(sys.version_info[:3]), "torch": torch}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter. `version` is its version, e.g. "3.11.7"; `torch_version` is None without torch; `origin`
    says how the interpreter was found."""

    path: str
    version: str
    torch_version: str | None
    origin: str


_seen: dict[tuple[str, int], tuple[str, str | None] | None] = {}


def find_interpreter(file_path: str | Path, explicit: str | None = None) -> Interpreter:
    """Returns the interpreter for the worker of the module in `file_path`: the first one with torch.

    Tries in order: `explicit` (a program or an environment's folder; then nothing else is tried), `.venv` or `venv`
    beside the file or above (up to a folder that everybody can write to), VIRTUAL_ENV, CONDA_PREFIX, our own
    interpreter, `python3` and `python` on PATH.

    Raises UsageError if `explicit` is not a Python interpreter, MissingError if torch is missing or too old.
    """
    if explicit:
        return _check(_explicit(explicit))
    tried = []
    for path, origin in _candidates(Path(file_path).absolute()):
        interpreter = probe(path, origin)
        if interpreter is not None and interpreter.torch_version is not None:
            return _check(interpreter)
        if interpreter is not None:
            tried.append(interpreter.path)
    raise MissingError(
        f"no Python with torch was found (looked at {', '.join(tried) or 'none'})",
        "install torch in the project's .venv, or name the interpreter that has it: --python PATH",
    )


def probe(path: Path, origin: str) -> Interpreter | None:
    """Runs the interpreter at `path` and returns its versions, None if it does not run. Results are cached until the
    program or its installed packages change."""
    try:
        # Not resolved: a virtual environment's python is a link, whose location determines the environment.
        key = (str(path), stamp(path))
    except OSError:
        return None
    if key not in _seen:
        _seen[key] = _ask(path)
    answer = _seen[key]
    return None if answer is None else Interpreter(str(path), answer[0], answer[1], origin)


def stamp(path: Path) -> int:
    """Returns a number that changes when the program or its installed packages change. Raises OSError if `path` does
    not exist."""
    stamp = path.stat().st_mtime_ns
    for folder in path.parent.parent.glob("lib/python3*/site-packages"):
        stamp = max(stamp, folder.stat().st_mtime_ns)
    return stamp


def _ask(path: Path) -> tuple[str, str | None] | None:
    try:
        done = subprocess.run([str(path), "-c", _PROBE], capture_output=True, cwd="/", timeout=60, check=True)
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return ".".join(str(part) for part in answer["version"]), answer["torch"]


def _explicit(explicit: str) -> Interpreter:
    path = Path(explicit).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    elif "/" not in explicit:
        path = Path(shutil.which(explicit) or explicit)
    interpreter = probe(path.absolute(), "--python")
    if interpreter is None:
        raise UsageError(f"{explicit} is not a Python interpreter that runs", "give the path of python to --python")
    return interpreter


def _candidates(file: Path) -> Iterator[tuple[Path, str]]:
    for folder in file.parents:
        if _is_shared(folder):
            break
        for name in (".venv", "venv"):
            if _is_ours(folder / name):
                yield folder / name / "bin" / "python", f"{name} of {folder}"
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin" / "python", variable
    yield Path(sys.executable), "the interpreter of kernel-assistant"
    for name in ("python3", "python"):
        program = shutil.which(name)
        if program:
            yield Path(program), "PATH"


def _is_shared(folder: Path) -> bool:
    """Whether everybody can write to a folder, such as /tmp. A `.venv` there need not belong to the project."""
    try:
        return bool(folder.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


def _is_ours(folder: Path) -> bool:
    """Whether a folder belongs to this user or root. Environments of other users must not be run."""
    try:
        return folder.stat().st_uid in (os.getuid(), 0)
    except OSError:
        return False


def _check(interpreter: Interpreter) -> Interpreter:
    """Returns `interpreter` unchanged if the worker can use it. Raises MissingError if its Python or torch is too old,
    or if torch is missing."""
    if _numbers(interpreter.version) < MINIMUM_PYTHON:
        raise MissingError(
            f"{interpreter.path} is Python {interpreter.version}, the worker needs 3.10 or newer",
            "name another one: --python PATH",
        )
    if interpreter.torch_version is None:
        raise MissingError(
            f"{interpreter.path} has no torch",
            f"install it there ({interpreter.path} -m pip install torch) or use --python PATH",
        )
    if _numbers(interpreter.torch_version) < MINIMUM_TORCH:
        raise MissingError(
            f"{interpreter.path} has torch {interpreter.torch_version}, 2.9 or newer is needed",
            f"upgrade it there ({interpreter.path} -m pip install -U torch) or name another Python: --python PATH",
        )
    return interpreter


def _numbers(version: str) -> tuple[int, int]:
    """Returns (major, minor) of a version such as "2.13.0+cpu" or "2.14.0a0"."""
    major, _, rest = version.partition(".")
    return int(major), int("".join(c for c in rest.partition(".")[0] if c.isdigit()) or 0)
