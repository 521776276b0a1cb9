"""OptimizeResult: the one object that `optimize --json` prints."""

from __future__ import annotations

from enum import Enum

from kernel_assistant.records.codec import Record
from kernel_assistant.records.evaluation import Gain
from kernel_assistant.records.free_win import FreeWin, fastest_mode, over_change
from kernel_assistant.records.obstacle import Obstacle
from kernel_assistant.records.offer import OVER_COMPILE, OVER_EAGER, Offer, ProgramMode, verdicts_of
from kernel_assistant.records.spending import Spending

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


class Best(Record, frozen=True, kw_only=True):
    """The best candidate, as a confirmation (full tier, fresh samples) measured it.

    `residual` names the operators that PyTorch still runs; if there are any, the result is partial. Milliseconds are
    per call, medians; `relative_error` is ‖candidate - float64‖₂/‖float64‖₂. Milliseconds and `relative_error` are None
    in older documents.
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
    """The result of a job. `vs_eager` and `vs_compile` are the two verdicts on the best candidate. `offer` follows from
    them by the rule of records/offer.py, and `outcome` is `improved` if the offer is `recommended`. `gain_over` names
    the baseline over which applying gains, "" if applying gains nothing; `offer` and `gain_over` also depend on the
    timing of the edited file.

    `why` says in one line why there is no candidate, "" if there is one; `obstacles` are the checks that candidates
    failed. `job` is the job's number on this machine, None if it is not known; `session` is that of the task: the
    notebook or session in which the class was typed, "" for a class of a file. `spent` is the cost of models, None if
    no model was used. Older documents lack some of these fields.
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
    offer: Offer | None = None
    obstacles: tuple[Obstacle, ...] = ()
    spent: Spending | None = None
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        if self.outcome is JobOutcome.improved and self.best is None:
            raise ValueError("an improved job has a best candidate")

    @property
    def offered(self) -> Offer:
        """The offer; for an older document without one, the offer that follows from its outcome."""
        if self.offer is not None:
            return self.offer
        if self.outcome is JobOutcome.improved:
            return Offer.recommended
        if self.gain_over:
            return Offer.possible if self.gain_over == OVER_EAGER else Offer.recommended
        return Offer.unclear if self.outcome is JobOutcome.inconclusive else Offer.none

    @property
    def applicable(self) -> bool:
        """Whether the kernels are faster than the baseline that the user's program runs, or may run."""
        return self.offered.applicable

    @property
    def verdicts(self) -> dict[str, Gain]:
        """Maps the name of each baseline to the verdict on the best candidate, torch.compile first; {} without a
        candidate."""
        best = self.best
        if best is None:
            return {}
        compiled = best.speedup_vs_compile, best.speedup_vs_compile_ci
        return verdicts_of(compiled, (best.speedup_vs_eager, best.speedup_vs_eager_ci), self.free_wins)

    @property
    def headline(self) -> tuple[str, float, tuple[float, float] | None] | None:
        """The speed-up to report, as (baseline, speed-up, 99.9% interval); None without a confirmed candidate. The
        baseline is torch.compile's default, its fastest mode if that is faster, or eager if torch.compile was not
        timed."""
        best = self.best
        if best is None:
            return None
        if best.speedup_vs_compile is None:
            return OVER_EAGER, best.speedup_vs_eager, best.speedup_vs_eager_ci
        mode = fastest_mode(self.free_wins)
        if mode is not None:
            speedup, interval = over_change(best.speedup_vs_compile, best.speedup_vs_compile_ci, mode)
            return (mode.mode, speedup, interval) if speedup is not None else None
        return OVER_COMPILE, best.speedup_vs_compile, best.speedup_vs_compile_ci
