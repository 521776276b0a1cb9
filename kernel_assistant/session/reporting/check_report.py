"""The report of the command `check` on classes with applied kernels, and the exit code of the command."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import msgspec

from kernel_assistant.errors import (
    EXIT_GATE,
    EXIT_INTERNAL,
    EXIT_MISSING,
    EXIT_OK,
    EXIT_USAGE,
    KernelAssistantError,
    StoreError,
    boundary,
)
from kernel_assistant.records import Timing, decode, encode
from kernel_assistant.records.codec import Record
from kernel_assistant.records.evaluation import measurably_slower
from kernel_assistant.session.kinds.applied_timing import AppliedRow

SCHEMA = "kernel-assistant/check/1"
CHECK_FILE = "check.json"


class CheckStatus(str, Enum):
    """The result of a check (docs/check.md explains each). All except `ok` and `cannot_run` mean that the check
    failed."""

    ok = "ok"
    slower = "slower"
    wrong = "wrong"
    cannot_build = "cannot_build"
    stale = "stale"
    no_binary = "no_binary"
    cannot_run = "cannot_run"


class AppliedRecord(Record, frozen=True, kw_only=True):
    """Facts from the time of applying: device, versions, date, and the speed-up of the edited file (None if not timed).
    `timing` is the judge's timing of the kernels alone."""

    device: str = ""
    versions: dict[str, str] = {}
    date: str = ""
    speedup: float | None = None
    timing: Timing | None = None


class ClassCheck(Record, frozen=True, kw_only=True):
    """The report on one class. Fields of later checks are empty after the first check that failed.

    `recorded` has the facts from the time of applying. `binary` is the file that is loaded on this machine, `rebuilt`
    the result of compiling again ("built", "compile error" or "refused"), `added` a binary that was added. `applied`
    compares the file with and without its kernels at the declared size; `timing` is the judge's timing of the loaded
    binary. `exit_code` is that of the error if the status is `cannot_run`.
    """

    name: str
    class_name: str
    package: str
    target: str
    status: CheckStatus
    message: str
    recorded: AppliedRecord
    device: str = ""
    binary: str = ""
    rebuilt: str = ""
    added: str = ""
    applied: AppliedRow | None = None
    timing: Timing | None = None
    seconds: float = 0.0
    exit_code: int = EXIT_OK
    next_step: str = ""

    def __post_init__(self) -> None:
        if (self.status is CheckStatus.cannot_run) != (self.exit_code != EXIT_OK):
            raise ValueError("what cannot run, and only that, carries the exit code of its cause")

    @property
    def gate_met(self) -> bool:
        return self.status is CheckStatus.ok


class CheckReport(Record, frozen=True, kw_only=True):
    """The object that `check --json` prints. `fail_under` is None if the option was not given."""

    classes: tuple[ClassCheck, ...]
    fail_under: float | None = None
    schema: str = SCHEMA

    @property
    def exit_code(self) -> int:
        """The exit code of the worst result: internal errors first, then failed checks, missing parts, usage errors."""
        codes = {one.exit_code for one in self.classes}
        if EXIT_INTERNAL in codes:
            return EXIT_INTERNAL
        if any(not one.gate_met and one.status is not CheckStatus.cannot_run for one in self.classes):
            return EXIT_GATE
        return EXIT_MISSING if EXIT_MISSING in codes else EXIT_USAGE if EXIT_USAGE in codes else EXIT_OK


def gated(check: ClassCheck, fail_under: float | None) -> ClassCheck:
    """Returns `check`, with the status `slower` if the file with kernels is too slow. It must be at least `fail_under`
    times as fast as the original; if `fail_under` is None, it must not be measurably slower."""
    row = check.applied
    if check.status is not CheckStatus.ok or row is None:
        return check
    if fail_under is None and not measurably_slower(row.speedup, row.speedup_ci):
        return check
    if fail_under is not None and row.speedup >= fail_under:
        return check
    low, high = row.speedup_ci
    want = "not measurably slower" if fail_under is None else f"{fail_under:g}×"
    message = f"{row.speedup:.2f}× ({low:.2f}–{high:.2f}) the original, the gate is {want}"
    return msgspec.structs.replace(
        check, status=CheckStatus.slower, message=message, next_step="optimize it again here, or undo the kernels"
    )


def cannot_run(check: ClassCheck, error: KernelAssistantError) -> ClassCheck:
    """Returns `check` with the status `cannot_run`, for a class that could not be checked because of `error`."""
    return msgspec.structs.replace(
        check,
        status=CheckStatus.cannot_run,
        message=error.cause,
        next_step=error.next_step,
        exit_code=error.exit_code,
    )


def write_check(folder: Path, check: ClassCheck) -> str:
    """Writes the report beside the job's other artifacts. Returns the path of the file. Raises StoreError."""
    path = folder / CHECK_FILE
    with boundary(StoreError, f"cannot write {path}"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(encode(check))
    return str(path)


def read_check(path: Path) -> ClassCheck:
    """Reads the report that a job wrote. Raises StoreError if that fails."""
    with boundary(StoreError, f"cannot read {path}"):
        return decode(path.read_bytes(), ClassCheck)
