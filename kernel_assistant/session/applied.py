"""The last measurement: the user's file with its kernels against the file as it was, guard and operator included."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec

from kernel_assistant.apply import Options, applied_variants
from kernel_assistant.environment.session import Environment
from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.records import KernelTask
from kernel_assistant.records.codec import Record, encode, from_builtins, to_builtins
from kernel_assistant.records.evaluation import measurably_faster, measurably_slower

TIME_SECONDS = 600.0
FILE = "applied.json"


class AppliedRow(Record, frozen=True, kw_only=True):
    """One size, alone or inside a compiled parent. `speedup` is original over applied, with its 99% interval."""

    name: str
    dims: dict[str, int]
    elements: int
    original_ms: float
    applied_ms: float
    speedup: float
    speedup_ci: tuple[float, float]
    equal: bool

    @property
    def slower(self) -> bool:
        return measurably_slower(self.speedup, self.speedup_ci)


class AppliedTiming(Record, frozen=True, kw_only=True):
    """All rows, and what follows from them for the guard. `worth` is False where applying would not pay."""

    rows: tuple[AppliedRow, ...]
    min_elements: int
    compiled_parent: str
    worth: bool

    def summary(self) -> str:
        """One number a row, for people."""
        return ", ".join(f"{row.name} {row.dims or ''}: {row.speedup:.2f}×" for row in self.rows)

    @property
    def options(self) -> Options:
        return Options(min_elements=self.min_elements, compiled_parent=self.compiled_parent)


def time_applied(environment: Environment, task: KernelTask, result_dir: Path, folder: Path) -> AppliedTiming:
    """Apply the result to copies below `folder` and time them. Raises UsageError where it cannot be applied."""
    with boundary(StoreError, f"cannot write {folder}"):
        shutil.rmtree(folder, ignore_errors=True)
        source = folder / "source" / Path(task.path).name
        source.parent.mkdir(parents=True, mode=0o700)
        source.write_text(task.content, encoding="utf-8")
        variants = applied_variants(result_dir, source, folder)
        # Both texts are loaded under the path whose package holds the kernels; only one of them names it.
        moved = msgspec.structs.replace(task, path=str(variants.applied))
        params: dict[str, Any] = {
            "task": to_builtins(moved),
            "applied": variants.applied.read_text(encoding="utf-8"),
            "device": environment.device.index,
            "cache_bytes": environment.device.cache_bytes,
            "compiled": True,
        }
    answer = environment.worker.call("time_applied", params, timeout=TIME_SECONDS, cancel=environment.cancel)
    return conclude(tuple(from_builtins(row, AppliedRow) for row in answer["rows"]))


def conclude(rows: tuple[AppliedRow, ...]) -> AppliedTiming:
    """The first row is the declared size alone: it must be faster. Smaller sizes that lose go to the original."""
    alone = [row for row in rows if row.name == "alone"]
    inside = [row for row in rows if row.name != "alone"]
    declared = alone[0]
    losing = [row.elements for row in alone[1:] if row.slower]
    return AppliedTiming(
        rows=rows,
        min_elements=max((size + 1 for size in losing if size < declared.elements), default=0),
        compiled_parent="original" if any(row.slower for row in inside) else "kernel",
        worth=all(row.equal for row in rows)
        and measurably_faster(declared.speedup, declared.speedup_ci)
        and not any(size >= declared.elements for size in losing),
    )


def write_applied(result_dir: Path, timing: AppliedTiming) -> str:
    """Beside the other artifacts; the path."""
    path = result_dir / FILE
    with boundary(StoreError, f"cannot write {path}"):
        path.write_bytes(encode(timing))
    return str(path)


def read_applied(result_dir: Path) -> AppliedTiming | None:
    """What a job wrote, None if it was not timed."""
    path = result_dir / FILE
    return from_builtins(json.loads(path.read_bytes()), AppliedTiming) if path.is_file() else None
