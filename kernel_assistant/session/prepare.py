"""Makes the task and the options of a job from the file, class or candidate that the user named. Every front end
prepares its jobs here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kernel_assistant.apply import is_installed
from kernel_assistant.config import Settings
from kernel_assistant.errors import UsageError
from kernel_assistant.records import Candidate, KernelTask, Price
from kernel_assistant.session.scanning.recorded import from_file, from_scan
from kernel_assistant.store import JobKind, JobOptions

if TYPE_CHECKING:
    from kernel_assistant.source.declared import NoInputsError


def prepare(
    spec: str,
    settings: Settings,
    *,
    text: str | None = None,
    kind: JobKind = JobKind.optimize,
    inputs: str = "auto",
    elsewhere: bool = False,
) -> tuple[KernelTask, JobOptions]:
    """Returns task and options for `FILE[:CLASS]`; `text` is an unsaved editor buffer.

    `inputs` says where the inputs come from: "declared" in the file, "recorded" by a scan, or "auto": declared ones if
    there are any. `elsewhere`: the remote machine that runs the job chooses target and interpreter. The interpreter is
    searched here and not in the host, which has the environment of its first client. Raises UsageError for the file or
    the options, MissingError if an interpreter, device or policy is missing.
    """
    from kernel_assistant.source.build import build_task, split_spec
    from kernel_assistant.source.declared import NoInputsError

    if not elsewhere:
        check_policy(settings)
    target = "cpu" if elsewhere else resolve_target(settings.target)
    if inputs != "recorded":
        try:
            task = build_task(spec, target=target, numerics=settings.numerics, text=text)
            return task, options(settings, "" if elsewhere else _python(task, settings), kind=kind)
        except NoInputsError as error:
            if inputs == "declared":
                raise
            recorded = from_file(*split_spec(spec), settings, target)
            if recorded is None and is_installed(error.path):
                raise _of_library(error) from None
            if recorded is None:
                raise
    else:
        recorded = from_file(*split_spec(spec), settings, target)
        if recorded is None:
            raise UsageError(
                f"no scan kept inputs for {spec}", "scan a program that uses it: kernel-assistant scan -- …"
            )
    task = recorded.task
    if text is not None and not task.installed:
        task = msgspec.structs.replace(task, content=text)
    return task, options(settings, settings.python or recorded.python, kind=kind)


def _of_library(error: NoInputsError) -> NoInputsError:
    """Returns the error to raise for a class of an installed library without inputs: its next step is a scan, because
    the user should not edit the library's file."""
    from kernel_assistant.source.declared import NoInputsError

    return NoInputsError(
        f"{error.class_name} is of an installed library, and no scan kept inputs of it",
        "scan a program that uses it: kernel-assistant scan --keep 100 -- …",
        path=error.path,
        class_name=error.class_name,
        others=error.others,
    )


def prepare_scanned(spec: str, settings: Settings, *, elsewhere: bool = False) -> tuple[KernelTask, JobOptions]:
    """Returns task and options for a class of a scan; `spec` is `ID:CLASS`. Raises as `prepare` does."""
    if not elsewhere:
        check_policy(settings)
    recorded = from_scan(spec, settings, "cpu" if elsewhere else resolve_target(settings.target))
    return recorded.task, options(settings, settings.python or recorded.python, kind=JobKind.optimize)


def options(settings: Settings, python: str, *, kind: JobKind, candidate: Candidate | None = None) -> JobOptions:
    return JobOptions(
        kind=kind,
        policy=settings.policy,
        budget=settings.budget,
        python=python,
        sandbox=settings.sandbox,
        candidate=candidate,
        endpoint=settings.endpoint,
        model=settings.model,
        episodes=settings.episodes,
        turns=settings.turns,
        tokens=settings.tokens,
        money=settings.money,
        price=Price.known(settings.price_in, settings.price_out),
        device_time=settings.device_time,
    )


def check_policy(settings: Settings) -> None:
    """Raises NoModelError if the policy is "model" and no model is set up, and UsageError if the user limits the money
    and the model has no price."""
    limited = settings.money is not None and settings.policy != "generator"
    if settings.policy != "model" and not limited:
        return
    from kernel_assistant.serving.errors import NoModelError
    from kernel_assistant.serving.registry import find, price_of

    try:
        otherwise = Price.known(settings.price_in, settings.price_out)
        price_of(find(settings.endpoint or settings.model, settings), otherwise, settings.money)
    except NoModelError:
        if settings.policy == "model":
            raise


def resolve_target(target: str) -> str:
    """Returns `target`, or for "auto" the target of this machine: `cuda` if there is a GPU, else `cpu`. Raises
    MissingError if the device is missing."""
    from kernel_assistant.targets.detect import detect

    return detect(target).target


def prepare_check(
    path: Path, reference: str | None, settings: Settings, kind: JobKind
) -> tuple[KernelTask, JobOptions]:
    """Returns task and options of a job that checks the candidate at `path`: a workspace (a folder with `plan.json` and
    sources), a Python file with a class `ModelNew`, or a CUDA-Agent folder. `reference` (FILE[:CLASS]) replaces the
    candidate's own reference module. Raises UsageError for a malformed candidate or if there is no reference,
    MissingError if the device or an interpreter is missing."""
    if (path / "plan.json").is_file():
        return _prepare_workspace(path, reference, settings, kind)
    return _prepare_freeform(path, reference, settings, kind)


def _prepare_workspace(
    folder: Path, reference: str | None, settings: Settings, kind: JobKind
) -> tuple[KernelTask, JobOptions]:
    from kernel_assistant.session.artifacts import read_task, read_workspace
    from kernel_assistant.source.build import build_task

    candidate = read_workspace(folder)
    target = candidate.plan.target
    if settings.target not in ("auto", target):
        raise UsageError(f"the candidate is for {target}, not {settings.target}", f"leave --target out or say {target}")
    resolve_target(target)
    task = read_task(folder) if reference is None else build_task(reference, target=target, numerics=settings.numerics)
    if task is None:
        raise UsageError(f"{folder} says nothing of its reference", "add --reference FILE[:CLASS]")
    task = msgspec.structs.replace(task, target=target)
    return task, options(settings, _python(task, settings), kind=kind, candidate=candidate)


def _prepare_freeform(
    path: Path, reference: str | None, settings: Settings, kind: JobKind
) -> tuple[KernelTask, JobOptions]:
    from kernel_assistant.environment.freeform import target_of, task_of
    from kernel_assistant.environment.freeform_candidate import load_candidate
    from kernel_assistant.session.kinds.freeform_job import source_of

    candidate = load_candidate(path, reference)
    target = resolve_target(target_of(candidate, settings.target))
    task = task_of(candidate, reference, target, settings.numerics)
    chosen = options(settings, _python(task, settings), kind=kind)
    return task, msgspec.structs.replace(chosen, freeform=source_of(candidate))


def _python(task: KernelTask, settings: Settings) -> str:
    from kernel_assistant.source.interpreter import find_interpreter

    return find_interpreter(task.path, settings.python or None).path
