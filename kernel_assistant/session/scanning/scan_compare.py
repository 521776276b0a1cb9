"""Compares two scans of the same command, before and after applying kernels. Pure, except for `find_earlier`."""

from __future__ import annotations

from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import Record
from kernel_assistant.records.scan import Scan, ScannedClass
from kernel_assistant.store.scans import ScanStore


class ClassChange(Record, frozen=True, kw_only=True):
    """One class in both scans. Seconds include the modules inside the class. They exclude the first call with each kind
    of inputs (`..._first_seconds`), because that call loads and selects kernels for later calls."""

    name: str
    path: str
    calls_before: int
    calls_after: int
    before_seconds: float
    after_seconds: float
    before_first_seconds: float
    after_first_seconds: float
    applied: bool


class ScanComparison(Record, frozen=True, kw_only=True):
    """The comparison of two scans. `before` is the number of the earlier scan. Seconds and runs are times of the part
    of a run that `Scan.counted_seconds` measures; wall seconds are times of the whole program. `applied` and `removed`
    are the `FILE:CLASS` whose kernels were applied or undone between the scans."""

    before: str
    before_seconds: float
    after_seconds: float
    before_wall_seconds: float
    after_wall_seconds: float
    before_runs: tuple[float, ...]
    after_runs: tuple[float, ...]
    applied: tuple[str, ...]
    removed: tuple[str, ...]
    classes: tuple[ClassChange, ...]
    note: str

    @property
    def speedup(self) -> float:
        return self.before_seconds / self.after_seconds


def find_earlier(store: ScanStore, scan: Scan, against: str = "") -> Scan | None:
    """Returns the scan to compare `scan` with: the scan number `against` or, if that is "", the newest earlier scan of
    the same command with other kernels applied; None if there is none. Raises UsageError if `against` does not
    exist."""
    if against:
        return store.scan(against)
    earlier = [one for one in store.scans(command=scan.command, folder=scan.folder) if int(one.id) < int(scan.id)]
    return next((one for one in earlier if one.applied != scan.applied), None)


def compare(before: Scan, after: Scan) -> ScanComparison:
    """Compares two scans. Raises UsageError if they ran on different devices."""
    if (before.target, before.device) != (after.target, after.device):
        raise UsageError(
            f"scan {before.id} ran on {before.device}, scan {after.id} on {after.device}",
            "compare scans of one device",
        )
    fresh = tuple(name for name in after.applied if name not in before.applied)
    gone = tuple(name for name in before.applied if name not in after.applied)
    ran = {row.key: row for row in before.classes}
    pairs = [(ran[row.key], row) for row in after.classes if row.key in ran]
    changes = [_change(one, other, fresh + gone) for one, other in pairs]
    return ScanComparison(
        before=before.id,
        before_seconds=before.counted_seconds,
        after_seconds=after.counted_seconds,
        before_wall_seconds=before.wall_seconds,
        after_wall_seconds=after.wall_seconds,
        before_runs=before.counted_runs,
        after_runs=after.counted_runs,
        applied=fresh,
        removed=gone,
        classes=tuple(sorted(changes, key=lambda one: (not one.applied, one.after_seconds - one.before_seconds))),
        note=_note(before, after),
    )


def _change(before: ScannedClass, after: ScannedClass, changed: tuple[str, ...]) -> ClassChange:
    return ClassChange(
        name=after.name,
        path=after.path,
        calls_before=before.calls,
        calls_after=after.calls,
        before_seconds=_warm(before),
        after_seconds=_warm(after),
        before_first_seconds=before.first_seconds,
        after_first_seconds=after.first_seconds,
        applied=f"{after.path}:{after.name}" in changed,
    )


def _warm(row: ScannedClass) -> float:
    warm = row.inclusive_seconds - row.first_seconds if row.warm_seconds is None else row.warm_seconds
    return max(warm, 0.0)


def _note(before: Scan, after: Scan) -> str:
    if (before.loop, before.rounds) != (after.loop, after.rounds):
        return (
            f"the two cannot be compared: the loop had {before.rounds} and {after.rounds} rounds without the first; "
            "`kernel-assistant compare` measures both"
        )
    earlier, later = before.counted_runs, after.counted_runs
    if min(len(earlier), len(later)) < 3:
        return "one run is one sample: a few percent either way are noise; --repeat 5 takes the median of five"
    low, high = min(earlier) / max(later), max(earlier) / min(later)
    return f"medians of {len(earlier)} and {len(later)} runs; single runs give {low:.2f} to {high:.2f}×"
