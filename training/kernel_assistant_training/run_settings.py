"""The settings of a run, in `run.json`. A folder belongs to one run, which can be continued only with the same
settings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kernel_assistant.errors import StoreError, UsageError, boundary
from kernel_assistant.session.training_run import replace_file


def claim_run(path: Path, asked: Mapping[str, Any], free: Collection[str] = ()) -> None:
    """Makes `path` the folder of a run with the settings `asked`, or continues its run. Settings in `free` come from
    earlier versions and are not compared. Incomplete checkpoints are removed.

    Raises UsageError if the folder belongs to a run with other settings, StoreError if it cannot be made.
    """
    with boundary(StoreError, f"{path} could not be made"):
        path.mkdir(parents=True, exist_ok=True)
        for rest in path.glob("checkpoint-*.partial"):
            shutil.rmtree(rest)
        _hold_to(path, asked, free)


def _hold_to(path: Path, asked: Mapping[str, Any], free: Collection[str]) -> None:
    file = path / "run.json"
    if not file.is_file():
        replace_file(file, (json.dumps(dict(asked), indent=1) + "\n").encode())
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    other = [name for name in {**before, **asked} if name not in free and before.get(name) != asked.get(name)]
    if other:
        differences = ", ".join(f"{name} {before.get(name)!r}, not {asked.get(name)!r}" for name in sorted(other))
        raise UsageError(f"{path} is a run with {differences}", "name another folder: --out")
