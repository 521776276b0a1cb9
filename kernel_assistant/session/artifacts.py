"""Writes and reads the files that a job leaves in `jobs/<id>/result/`. This folder is also a workspace, a folder with a
candidate's plan and sources, which `verify` and `profile` accept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NotRequired, TypedDict, Unpack

from kernel_assistant.environment.builds.headers import complete, source_paths
from kernel_assistant.errors import StoreError, UsageError, boundary
from kernel_assistant.records import Candidate, Evaluation, KernelTask, OpGraph, Plan, Trajectory, decode, encode
from kernel_assistant.targets.base import DeviceFacts

SOURCE_SUFFIXES = (".cu", ".cuh", ".cpp", ".h")


class JobArtifacts(TypedDict):
    """The records that a job may have when it ends. `facts` is what the worker reported about the opened task;
    `binaries` maps file names to contents."""

    task: KernelTask
    graph: OpGraph | None
    device: DeviceFacts
    facts: dict[str, Any]
    evaluation: Evaluation | None
    trajectory: NotRequired[Trajectory | None]
    candidate: NotRequired[Candidate | None]
    binaries: NotRequired[dict[str, bytes]]


def write_result(folder: Path, **known: Unpack[JobArtifacts]) -> dict[str, str]:
    """Writes the records `known` as files to `folder`, whose old content is deleted. Returns a dict: name of the file
    relative to `folder` → its path. Raises StoreError if the files cannot be written."""
    files = result_files(**known)
    write_files(folder, files)
    return {name: str(folder / name) for name in files}


def result_files(**known: Unpack[JobArtifacts]) -> dict[str, bytes]:
    """Returns the files of a result as name → content: one file for each record in `known` that is not None, and the
    plan, the sources and the binaries of the candidate."""
    graph, trajectory, evaluation = known["graph"], known.get("trajectory"), known["evaluation"]
    files: dict[str, bytes] = {
        "task.json": encode(known["task"]),
        "device.json": encode(known["device"]),
        # Not `encode`, which sorts: the order of a dict's keys is part of what a module takes and returns.
        "facts.json": json.dumps(known["facts"]).encode(),
    }
    if graph is not None:
        files |= {"graph.txt": graph.text().encode(), "graph.json": encode(graph)}
    if trajectory is not None:
        files["trajectory.json"] = encode(trajectory)
    if evaluation is not None:
        files["evaluation.json"] = encode(evaluation)
    if (candidate := known.get("candidate")) is not None:
        files["plan.json"] = encode(candidate.plan)
        files |= {f"sources/{name}": text.encode() for name, text in complete(candidate).sources.items()}
        files |= {f"binaries/{name}": content for name, content in known.get("binaries", {}).items()}
    return files


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Replaces the content of `folder` with `files` (name → content). Raises StoreError, and keeps the old folder, if
    writing fails."""
    with boundary(StoreError, f"cannot write {folder}"):
        _replace_folder(folder, files)


def read_workspace(folder: Path) -> Candidate:
    """Loads the candidate from `folder`, which contains `plan.json`, and the source files beside it or in `sources/`.
    Raises UsageError if a file is missing or malformed."""
    try:
        plan = decode((folder / "plan.json").read_bytes(), Plan)
        within = folder / "sources" if (folder / "sources").is_dir() else folder
        sources = {
            name: path.read_text(encoding="utf-8")
            for name, path in source_paths(within).items()
            if path.suffix in SOURCE_SUFFIXES
        }
        return Candidate(plan=plan, sources=sources)
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} is not a workspace: {error}", "a workspace holds plan.json and sources") from error


def read_task(folder: Path) -> KernelTask | None:
    """Reads the task from `task.json` of a workspace; returns None if there is no such file."""
    path = folder / "task.json"
    return decode(path.read_bytes(), KernelTask) if path.is_file() else None


def _replace_folder(folder: Path, files: dict[str, bytes]) -> None:
    draft = folder.with_name(folder.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        for name, content in files.items():
            path = draft / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(content)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
