"""The file with and without its kernels, in a folder apart, so that the applied form is timed before it is offered."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.apply.apply import Applied, apply_result
from kernel_assistant.apply.provenance import Options


@dataclass(frozen=True)
class Variants:
    """Two files of the same name in two folders, and the package beside the second. Both are loaded by path; what they
    import comes from the task's `search_path`."""

    original: Path
    applied: Path
    package: Path


def applied_variants(
    result_dir: Path | str, source_path: Path | str, folder: Path, options: Options | None = None
) -> Variants:
    """Copies of `source_path` below `folder`, which is made; `applied` has the kernels of the result."""
    source = Path(source_path).absolute()
    places = [folder / which / source.name for which in ("original", "applied")]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
    applied: Applied = apply_result(result_dir, places[1], options=options)
    return Variants(original=places[0], applied=applied.source, package=applied.package)
