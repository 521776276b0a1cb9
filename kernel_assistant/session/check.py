"""From an applied package to the job that checks it: the file as it is now, the task of then. Torch-free."""

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
from kernel_assistant.session.check_job import unchecked
from kernel_assistant.session.check_report import CheckStatus, ClassCheck
from kernel_assistant.session.prepare import options, resolve_target
from kernel_assistant.source.build import build_task, import_location
from kernel_assistant.source.interpreter import find_interpreter
from kernel_assistant.store import AppliedCheck, JobKind, JobOptions

# Folder by folder from sys.path on: importing the packages above, as importlib.util.find_spec does, takes seconds. It
# decides where that finds nothing, for what is imported in a way of its own.
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
class Wish:
    """What of a check is optional, as `AppliedCheck` has it."""

    timing: bool = True
    kernels: bool = False
    build_missing: bool = False


@dataclass(frozen=True)
class Prepared:
    """A check that a host can take."""

    task: KernelTask
    options: JobOptions


def prepare_applied(applied: AppliedClass, settings: Settings, wish: Wish) -> Prepared | ClassCheck:
    """The job for one class, or its verdict where none is needed because the file is not what was verified.

    Raises UsageError for a file or inputs that are not there, MissingError for a device or an interpreter.
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
        timing=wish.timing,
        kernels=wish.kernels,
        build_missing=wish.build_missing,
    )
    chosen = options(settings, python, kind=JobKind.check)
    return Prepared(_task(applied, source, bare, target), msgspec.structs.replace(chosen, applied=wanted))


def _task(applied: AppliedClass, source: Path, text: str, target: str) -> KernelTask:
    """As it was then; where that named files that are not here, or nothing was kept, as the file declares it now."""
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
        # What is installed is found without help.
        search_path=(search_path,) if applied.source is not None else (),
        module_name=module_name if applied.source is not None else applied.module,
        target=target,
    )


def _is_whole(task: KernelTask) -> bool:
    """Whether the task can be opened without what a Python call or a scan left on another machine."""
    if task.source is InputSource.recorded:
        return Path(task.recording).is_dir()
    return task.source is not InputSource.files


def _replaced(applied: AppliedClass, text: str) -> str:
    """The library's text with the kernels in its class: what importing the project's package makes of it."""
    decorator = f'@{ALIAS}({str(applied.package / "load.py")!r})["accelerated"]("{applied.class_name}")'
    return plan_edit(text, applied.class_name, IMPORT_LINE, decorator, name=applied.module).apply(text)


def _find_module(module: str, python: str, folder: Path) -> Path:
    """The file of an installed module, as the user's interpreter finds it. Raises MissingError."""
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
