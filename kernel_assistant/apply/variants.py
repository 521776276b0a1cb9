"""Makes copies of the user's file with and without kernels in another folder, to time them before applying."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.apply.apply import ApplyResult, apply_result
from kernel_assistant.apply.provenance import AppliedOptions


@dataclass(frozen=True)
class OriginalAndApplied:
    """Two copies of the user's file in two folders: `original` without and `applied` with kernels; `package` is the
    package beside `applied`. Both are loaded by path; the modules that they import are found in the task's
    `search_path`."""

    original: Path
    applied: Path
    package: Path


def applied_variants(
    result_dir: Path | str, source_path: Path | str, folder: Path, options: AppliedOptions | None = None
) -> OriginalAndApplied:
    """Copies `source_path` to two new folders below `folder`, which is created, and applies the kernels of the result
    to one of the copies."""
    source = Path(source_path).absolute()
    copies = [folder / which / source.name for which in ("original", "applied")]
    for copy in copies:
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    applied: ApplyResult = apply_result(result_dir, copies[1], options=options)
    return OriginalAndApplied(original=copies[0], applied=applied.source, package=applied.package)
