"""OptimizeResult: the one object that `optimize --json` prints."""

from __future__ import annotations

from enum import Enum

from kernel_assistant.records.codec import Record
from kernel_assistant.records.evaluation import Gain
from kernel_assistant.records.free_win import FreeWin

SCHEMA = "kernel-assistant/optimize/1"


class JobOutcome(str, Enum):
    improved = "improved"
    no_measurable_gain = "no_measurable_gain"
    at_limit = "at_limit"
    no_candidate = "no_candidate"
    inconclusive = "inconclusive"  # the measurements allow for a gain and for none, or other work disturbed all of them
    cancelled = "cancelled"
    failed = "failed"
    profiled = "profiled"  # lines were timed, nothing was searched for


class ProgramMode(str, Enum):
    """How the user's program runs the class, as a scan has seen it."""

    unknown = "unknown"
    eager = "eager"
    compiled = "compiled"
    scripted = "scripted"


#: Values of `OptimizeResult.gain_over`: the baseline that applying gains over.
OVER_COMPILE, OVER_EAGER = "torch.compile", "eager"


class Best(Record, frozen=True, kw_only=True):
    """The best candidate, from fresh samples of the full tier only.

    `residual` names the calls that stay PyTorch's; if there are any, the result is partial. Milliseconds are per call,
    medians; `relative_error` is ‖candidate - float64‖₂/‖float64‖₂. Both are None in older documents.
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
    relative_error: float | None = None
    candidate_ms: float | None = None
    eager_ms: float | None = None
    compile_ms: float | None = None
    speedup_vs_eager_ci: tuple[float, float] | None = None


class OptimizeResult(Record, frozen=True, kw_only=True):
    """`vs_eager` and `vs_compile` are the two verdicts on the best candidate; `outcome` depends on both, so a gain over
    eager mode alone does not count as improved. `gain_over` is the baseline over which the edited file gains
    nevertheless: OVER_COMPILE, OVER_EAGER (where the program is not known to compile the class), or "". `why` says in
    one line why there is no candidate, "" where there is one; `job` is the number on this machine, None where it is not
    known; `session` is the task's: the notebook or session of a class that is in no file. Older documents leave these
    out.
    """

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
    why: str = ""
    job: int | None = None
    vs_eager: Gain = Gain.unknown
    vs_compile: Gain = Gain.unknown
    program: ProgramMode = ProgramMode.unknown
    gain_over: str = ""
    session: str = ""
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        if self.outcome is JobOutcome.improved and self.best is None:
            raise ValueError("an improved job has a best candidate")

    @property
    def applicable(self) -> bool:
        """Whether applying the kernels is faster than what the user runs, or may run."""
        return self.outcome is JobOutcome.improved or bool(self.gain_over)
