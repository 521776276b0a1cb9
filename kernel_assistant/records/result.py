"""OptimizeResult: the one object that `optimize --json` prints."""

from __future__ import annotations

from enum import Enum

from kernel_assistant.records.codec import Record
from kernel_assistant.records.free_win import FreeWin

SCHEMA = "kernel-assistant/optimize/1"


class JobOutcome(str, Enum):
    improved = "improved"
    no_measurable_gain = "no_measurable_gain"
    at_limit = "at_limit"
    no_candidate = "no_candidate"
    inconclusive = "inconclusive"  # other work on the machine kept disturbing the measurement
    cancelled = "cancelled"
    failed = "failed"
    profiled = "profiled"  # lines were timed, nothing was searched for


class Best(Record, frozen=True, kw_only=True):
    """The best candidate, from fresh samples of the full tier only.

    `residual` names the calls that stay PyTorch's: with any the result is partial.
    """

    policy: str
    speedup_vs_eager: float
    speedup_vs_compile: float | None
    speedup_vs_compile_ci: tuple[float, float] | None
    error_vs_fp64: float
    error_ratio: float
    precision: str
    roofline: float
    share_in_our_kernels: float
    files: tuple[str, ...]
    residual: tuple[str, ...] = ()


class OptimizeResult(Record, frozen=True, kw_only=True):
    task: str
    target: str
    device: str
    outcome: JobOutcome
    best: Best | None
    evaluations: int
    seconds: float
    stop_reason: str
    artifacts: dict[str, str]
    free_wins: tuple[FreeWin, ...] = ()
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        if self.outcome is JobOutcome.improved and self.best is None:
            raise ValueError("an improved job has a best candidate")
