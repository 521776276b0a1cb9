"""Times of the edited file, and what follows from them for its guard."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.apply import Options
from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.records import decode, encode
from kernel_assistant.records.codec import Record
from kernel_assistant.records.evaluation import measurably_faster

APPLIED_FILE = "applied.json"


class AppliedRow(Record, frozen=True, kw_only=True):
    """One size, alone or inside a compiled parent. `speedup` is original over applied, with its 99.9% interval."""

    name: str
    dims: dict[str, int]
    elements: int
    original_ms: float
    applied_ms: float
    speedup: float
    speedup_ci: tuple[float, float]
    equal: bool

    @property
    def loses(self) -> bool:
        """In doubt for the original: the best estimate decides, not only what is measurable."""
        return self.speedup < 1.0


class AppliedTiming(Record, frozen=True, kw_only=True):
    """All rows, and what follows from them for the guard. `worth` is False where applying would not pay."""

    rows: tuple[AppliedRow, ...]
    min_elements: int
    compiled_parent: str
    worth: bool

    def summary(self) -> str:
        """What the guard does to the gain, for people."""
        low, high = self.rows[0].speedup_ci
        words = f"{self.rows[0].speedup:.2f}× ({low:.2f}–{high:.2f}) the original"
        originals = [f"below {self.min_elements} elements"] if self.min_elements else []
        originals += ["inside a compiled parent"] if self.compiled_parent == "original" else []
        return words + (f"; {' and '.join(originals)} the original runs" if originals else "")

    @property
    def options(self) -> Options:
        declared = self.rows[0]
        return Options(
            min_elements=self.min_elements,
            compiled_parent=self.compiled_parent,
            speedup=declared.speedup,
            speedup_ci=declared.speedup_ci,
        )


def conclude(rows: tuple[AppliedRow, ...]) -> AppliedTiming:
    """The first row is the declared size alone: it must be faster, or it is the only one. Smaller sizes that lose go to
    the original."""
    alone = [row for row in rows if row.name == "alone"]
    inside = [row for row in rows if row.name != "alone"]
    declared = alone[0]
    losing = [row.elements for row in alone[1:] if row.loses]
    return AppliedTiming(
        rows=rows,
        min_elements=max((size + 1 for size in losing if size < declared.elements), default=0),
        # Where it was not looked at, the original stays in doubt.
        compiled_parent="kernel" if inside and not any(row.loses for row in inside) else "original",
        worth=all(row.equal for row in rows)
        and measurably_faster(declared.speedup, declared.speedup_ci)
        and not any(size >= declared.elements for size in losing),
    )


def write_applied(result_dir: Path, timing: AppliedTiming) -> str:
    """Beside the other artifacts; the path."""
    path = result_dir / APPLIED_FILE
    with boundary(StoreError, f"cannot write {path}"):
        path.write_bytes(encode(timing))
    return str(path)


def read_applied(path: Path) -> AppliedTiming | None:
    """What a job wrote at `path`, None if it was not timed."""
    return decode(path.read_bytes(), AppliedTiming) if path.is_file() else None
