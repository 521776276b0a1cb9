"""Prepares a job that checks the kernels applied to a file: it uses the task of the job that made the kernels, with the
file's current text. Does not import torch."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernel_assistant.apply import AppliedClass
from kernel_assistant.apply.applied import reference_text, source_text, staleness
from kernel_assistant.apply.edit import ALIAS, IMPORT_LINE, plan_edit
from kernel_assistant.config import Settings
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.records import InputSource, KernelTask
from kernel_assistant.session.kinds.check_job import unchecked
from kernel_assistant.session.prepare import options, resolve_target
from kernel_assistant.session.reporting.check_report import CheckStatus, ClassCheck
from kernel_assistant.source.build import build_task, import_location
from kernel_assistant.source.interpreter import find_interpreter
from kernel_assistant.store import AppliedCheck, JobKind, JobOptions

# Searches the folders of sys.path, because importlib.util.find_spec imports the parent packages, which takes seconds.
# find_spec is used only if that finds nothing, for modules with import hooks of their own.
_FIND_MODULE = """
import importlib.util, sys
from importlib.machinery import PathFinder
parts, path, spec = sys.argv[1].split("."), None, None
for count in range(1, len(parts) + 1):
    spec = PathFinder.find_spec(".".join(parts[:count]), path)
    path = spec.submodule_search_locations if spec else None
    if spec is None or (path is None and count < len(parts)):
        spec = None
        break
if spec is None:
    try:
        spec = importlib.util.find_spec(sys.argv[1])
    except ImportError:
        pass
print()
print(spec.origin if spec and spec.origin else "")
"""
FIND_SECONDS = 300.0


@dataclass(frozen=True)
class CheckOptions:
    """The optional parts of a check: `timing` times the file with its kernels against the original, `kernels` also
    times the kernels alone, `build_missing` adds a binary for the architecture of this machine if there is none."""

    timing: bool = True
    kernels: bool = False
    build_missing: bool = False


@dataclass(frozen=True)
class PreparedCheck:
    """A check that can be submitted to a session host."""

    task: KernelTask
    options: JobOptions


def prepare_applied(
    applied: AppliedClass, settings: Settings, check_options: CheckOptions
) -> PreparedCheck | ClassCheck:
    """Returns the job that checks one applied class. If the class in the file differs from the class that was verified,
    no job is needed: returns a result with the status `stale` instead.

    Raises UsageError if a file or inputs are missing, MissingError if a device or an interpreter is missing.
    """
    target = resolve_target(applied.candidate.plan.target)
    python = find_interpreter(applied.source or applied.package, settings.python or None).path
    source = applied.source or _find_module(applied.module, python, applied.package.parent)
    text = source_text(source)
    stale = staleness(applied, text)
    if stale:
        return msgspec.structs.replace(
            unchecked(applied),
            status=CheckStatus.stale,
            message=f"{stale}; the original runs",
            next_step=f"kernel-assistant optimize {source}:{applied.class_name}",
        )
    bare = reference_text(applied, text)
    served = text if applied.source is not None else _replaced(applied, text)
    wanted = AppliedCheck(
        folder=str(applied.folder),
        text=served,
        timing=check_options.timing,
        kernels=check_options.kernels,
        build_missing=check_options.build_missing,
    )
    chosen = options(settings, python, kind=JobKind.check)
    return PreparedCheck(_task(applied, source, bare, target), msgspec.structs.replace(chosen, applied=wanted))


def _task(applied: AppliedClass, source: Path, text: str, target: str) -> KernelTask:
    """Returns the task of the job that made the kernels, with the current `text` of the file `source`. If that task was
    not kept, or needs files of another machine, returns a task with the inputs that the file declares now."""
    known = applied.task
    if known is None or not _is_whole(known):
        numerics = applied.provenance["numbers"]["numerics"]
        try:
            return build_task(f"{source}:{applied.class_name}", target=target, numerics=numerics, text=text)
        except UsageError as error:
            raise UsageError(
                f"the inputs of then are not on this machine, and {error.cause}", error.next_step
            ) from error
    module_name, search_path = import_location(source)
    return msgspec.structs.replace(
        known,
        path=str(source),
        content=text,
        # An installed module needs no search path.
        search_path=(search_path,) if applied.source is not None else (),
        module_name=module_name if applied.source is not None else applied.module,
        target=target,
    )


def _is_whole(task: KernelTask) -> bool:
    """Whether the task can be opened on this machine: it needs no files that a Python call or a scan left on another
    machine."""
    if task.source is InputSource.recorded:
        return Path(task.recording).is_dir()
    return task.source is not InputSource.files


def _replaced(applied: AppliedClass, text: str) -> str:
    """Returns `text`, the text of an installed library's file, with a decorator line that puts the kernels into the
    class. In the user's program, importing the package of kernels has the same effect."""
    decorator = f'@{ALIAS}({str(applied.package / "load.py")!r})["accelerated"]("{applied.class_name}")'
    return plan_edit(text, applied.class_name, IMPORT_LINE, decorator, name=applied.module).apply(text)


def _find_module(module: str, python: str, folder: Path) -> Path:
    """Returns the file of an installed module, found with the interpreter `python`, started in `folder`. Raises
    MissingError if there is no such Python file."""
    try:
        done = subprocess.run(
            [python, "-c", _FIND_MODULE, module],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=FIND_SECONDS,
            check=False,
        )
        origin = done.stdout.splitlines()[-1] if done.stdout.strip() else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{python} could not look for {module}: {error}", "name another with --python") from error
    if not origin.endswith(".py"):
        raise MissingError(f"{module} is not installed for {python}", "install it, or name another with --python")
    return Path(origin)
