"""Finds the folders that must be visible to a program: interpreters with their links, CUDA toolkits, C++ compilers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache

from kernel_assistant.errors import MissingError
from kernel_assistant.sandbox.mounts import inside

_ASK = (
    "import sys, json;"
    "print(json.dumps([sys.executable, getattr(sys, '_base_executable', sys.executable),"
    " sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]))"
)
# If an interpreter's prefix is or contains a home folder, only these parts of it are visible.
_PARTS = ("bin", "lib", "lib64", "include", "pyvenv.cfg")


@cache
def interpreter_paths(python: str) -> tuple[str, ...]:
    """Returns the paths that the sandbox must show for an interpreter: its executable, the links to it, its prefix and
    its base prefix. The executable to start comes first.

    For a wrapper script (a pyenv shim) these are the paths of the interpreter that the script starts. Raises
    MissingError if the interpreter does not run.
    """
    executable, base, *prefixes = json.loads(_ask(python, "-I", "-c", _ASK).stdout)
    return _interpreter(executable, base, prefixes)


@cache
def own_interpreter_paths() -> tuple[str, ...]:
    """Returns the paths that the launcher needs: those of this process's interpreter, without its virtual
    environment."""
    executable = os.path.realpath(sys.executable)
    return _interpreter(executable, executable, [sys.base_prefix, sys.base_exec_prefix])


@cache
def toolkit_paths(nvcc: str) -> tuple[str, ...]:
    """Returns the folders of the CUDA toolkit of `nvcc`, which may be a link or a script. Raises MissingError if
    `nvcc` does not run."""
    text = _ask(nvcc, "--dryrun", "-cubin", "-x", "cu", os.devnull, "-o", os.devnull).stderr
    folders = [
        match[1] for match in re.finditer(r"^#\$ (?:TOP|CICC_PATH|NVVMIR_LIBRARY_DIR)=(.+)$", text, re.MULTILINE)
    ]
    if not folders:
        raise MissingError(f"{nvcc} does not say where its toolkit is", "name another one, or reinstall CUDA")
    return _existing([os.path.dirname(os.path.realpath(shutil.which(nvcc) or nvcc)), *map(os.path.realpath, folders)])


@cache
def compiler_paths(compiler: str) -> tuple[str, ...]:
    """Returns the folders of a C++ compiler (g++, clang++, also one from conda). Raises MissingError if it does not
    run."""
    program = os.path.realpath(shutil.which(compiler) or compiler)
    questions = ("-print-prog-name=cc1plus", "-print-file-name=include", "-print-libgcc-file-name")
    asked = [_ask(compiler, question).stdout.strip() for question in questions]
    folders = [os.path.dirname(os.path.realpath(path)) for path in asked if os.path.isabs(path)]
    return _existing([os.path.dirname(program), *folders])


def _interpreter(executable: str, base: str, prefixes: list[str]) -> tuple[str, ...]:
    paths = [executable, base, os.path.realpath(executable)]
    for prefix in prefixes:
        if _holds_home(prefix):
            paths += [os.path.join(prefix, part) for part in _PARTS]
        else:
            paths.append(prefix)
    return _existing(paths)


def _holds_home(folder: str) -> bool:
    return inside(os.path.realpath(os.path.expanduser("~")), os.path.realpath(folder))


def _existing(paths: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for path in paths if os.path.exists(path)))


def _ask(*argv: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=30, check=True, cwd="/")
    except FileNotFoundError as error:
        raise MissingError(f"{argv[0]} was not found", "install it or name another one") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingError(f"{argv[0]} does not run: {error}", "install it anew or name another one") from error
