"""What a job leaves behind: `jobs/<id>/result/`, which is also a workspace that `verify` and `profile` take."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from kernel_assistant.environment.headers import complete, source_paths
from kernel_assistant.errors import StoreError, UsageError, boundary
from kernel_assistant.records import Candidate, Evaluation, KernelTask, OpGraph, Plan, Trajectory, decode, encode
from kernel_assistant.targets.base import DeviceFacts

SOURCE_SUFFIXES = (".cu", ".cuh", ".cpp", ".h")


def write_result(
    folder: Path,
    *,
    task: KernelTask,
    graph: OpGraph | None,
    device: DeviceFacts,
    facts: dict[str, Any],
    trajectory: Trajectory | None,
    candidate: Candidate | None,
    evaluation: Evaluation | None,
    binaries: dict[str, bytes],
) -> dict[str, str]:
    """Write everything that is known to `folder`, replacing it as a whole; artifact name → absolute path."""
    files: dict[str, bytes] = {
        "task.json": encode(task),
        "device.json": encode(device),
        # Not `encode`, which sorts: the order of a dict's keys is part of what a module takes and returns.
        "facts.json": json.dumps(facts).encode(),
    }
    if graph is not None:
        files |= {"graph.txt": graph.text().encode(), "graph.json": encode(graph)}
    if trajectory is not None:
        files["trajectory.json"] = encode(trajectory)
    if evaluation is not None:
        files["evaluation.json"] = encode(evaluation)
    if candidate is not None:
        files["plan.json"] = encode(candidate.plan)
        files |= {f"sources/{name}": text.encode() for name, text in complete(candidate).sources.items()}
        files |= {f"binaries/{name}": content for name, content in binaries.items()}
    with boundary(StoreError, f"cannot write {folder}"):
        _replace_folder(folder, files)
    return {name: str(folder / name) for name in files}


def read_workspace(folder: Path) -> Candidate:
    """The candidate in a folder with `plan.json` and sources, beside it or in `sources/`. Raises UsageError."""
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
    """The task beside a workspace's plan, None if there is none."""
    path = folder / "task.json"
    return decode(path.read_bytes(), KernelTask) if path.is_file() else None


def _replace_folder(folder: Path, files: dict[str, bytes]) -> None:
    draft = folder.with_name(folder.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    for name, content in files.items():
        path = draft / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(content)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
