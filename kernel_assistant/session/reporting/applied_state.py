"""Reads the state of a file's classes from the packages of kernels beside it: whether kernels are applied, whether the
class was edited since, and how many calls the kernels served."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kernel_assistant.apply import AppliedClass, find_applied, is_installed, replaced_in
from kernel_assistant.apply.applied import damage, report_name, staleness_while_typed
from kernel_assistant.apply.edit import decorator_line
from kernel_assistant.apply.package import package_name, read_manifest
from kernel_assistant.apply.takeback import decorated_while_typed
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.reporting.class_state import (
    ClassState,
    applicable_jobs,
    applied_figure,
    figure,
    newest_jobs,
    of_job,
    unconfirmed_jobs,
)
from kernel_assistant.store import JobRow


def states_of(
    path: Path, text: str, rows: Iterable[JobRow], counters_dir: Path, projects: Iterable[Path] = ()
) -> dict[str, ClassState]:
    """Returns the state of each class of a file by its name. `rows` are the jobs of the file, newest first; the kernels
    are read from the package beside it or, for an installed library, from a package in one of the folders `projects`.

    `text` is the file's text and may have syntax errors.
    """
    decorated = decorated_while_typed(text)
    rows = tuple(rows)
    states = {name: of_job(row, text) for name, row in newest_jobs(rows).items()}
    for name, row in applicable_jobs(rows).items():
        state = states.get(name, ClassState(job=row.id, state=row.state.value))
        states[name] = replace(state, offer=row.id, offered=figure(row.result))
    for name, job in unconfirmed_jobs(rows).items():
        states[name] = replace(states.get(name, ClassState()), unconfirmed=job)
    classes, problem = _replaced(path, projects) if is_installed(path) else _applied(path, decorated)
    for name, one in classes.items():
        state = states.get(name, ClassState())
        if one is None:
            states[name] = replace(state, applied=True, stale=_lost(path, text, name, problem))
        else:
            states[name] = _with_kernels(state, one, text, counters_dir)
    for name in _unused(path, decorated):
        states[name] = replace(states.get(name, ClassState()), unused=True)
    return states


def _unused(path: Path, decorated: list[str]) -> list[str]:
    """Returns the classes that have kernels in the package but no decorator in the text. Such a class remains if the
    user takes the lines back with the editor's own undo."""
    try:
        manifest = read_manifest(path.parent / package_name(path.stem))
    except KernelAssistantError:
        return []  # the folder is not one of ours
    return [] if manifest is None else [name for name in manifest.edits if name not in decorated]


def _applied(path: Path, decorated: list[str]) -> tuple[dict[str, AppliedClass | None], str]:
    """Returns a dict and a reason. The dict maps each decorated class to its applied class; to None if its package is
    missing or cannot be read. The reason says why it cannot be read; "" if there is no such error."""
    classes: dict[str, AppliedClass | None] = dict.fromkeys(decorated)
    problem = ""
    if decorated and (path.parent / package_name(path.stem)).is_dir():
        try:
            for one in find_applied([path]):
                if one.class_name in classes and classes[one.class_name] is None:
                    classes[one.class_name] = one
        except KernelAssistantError as error:
            problem = str(error.__cause__ or error.cause)
    return classes, problem


def _replaced(path: Path, projects: Iterable[Path]) -> tuple[dict[str, AppliedClass | None], str]:
    """Returns the same as `_applied` for the classes of an installed library's file. The packages are in `projects`."""
    packages = replaced_in(projects, path)
    classes: dict[str, AppliedClass | None] = dict.fromkeys(packages)
    problem = ""
    for name, package in packages.items():
        try:
            classes[name] = next((one for one in find_applied([package]) if one.class_name == name), None)
        except KernelAssistantError as error:
            problem = str(error.__cause__ or error.cause)
    return classes, problem


def _lost(path: Path, text: str, name: str, problem: str) -> str:
    """Returns a message for users: why the kernels cannot be read, and what runs instead. Usually that is the original;
    but a file with lines that an older version wrote cannot be imported."""
    package = package_name(path.stem)
    missing = not is_installed(path) and not (path.parent / package).is_dir()
    what = f"{package} is missing" if missing else problem or "its kernels cannot be read"
    runs = "the original runs" if is_installed(path) or decorator_line(name) in text else "this file cannot be imported"
    return f"{what}; {runs}"


def _with_kernels(state: ClassState, one: AppliedClass, text: str, counters_dir: Path) -> ClassState:
    calls, fallbacks = counted(counters_dir, one.package, one.class_name)
    return replace(
        state,
        applied=True,
        figure=applied_figure(one.provenance) or state.figure,
        stale=staleness_while_typed(one, text) or damage(one),
        kernel_calls=calls,
        fallbacks=fallbacks,
    )


def counted(counters_dir: Path, package: Path, class_name: str) -> tuple[int | None, dict[str, int]]:
    """Returns the number of calls that the kernels served and the fallbacks (reason → calls), both of the last program
    that reported them; (None, {}) if none did."""
    try:
        counts = json.loads((counters_dir / report_name(package)).read_bytes())["classes"][class_name]
        fallbacks = {str(reason): int(count) for reason, count in counts["fallbacks"].items()}
        # A program that loaded a class without calling it, or could not use its kernels, counts as no report.
        return (int(counts["kernel"]), fallbacks) if counts["kernel"] or fallbacks else (None, {})
    except (OSError, ValueError, KeyError, TypeError):
        return None, {}
