"""Evaluation: the record of one pass of a candidate through the environment. A kernel that fails is described in this
record; it raises no exception.
"""

from __future__ import annotations

from enum import Enum

from kernel_assistant.records.codec import Record


class Tier(str, Enum):
    """How thorough an evaluation is. `verify` ends after verification, with the inputs of `quick`; it is for rewards
    that ignore speed. `quick` steers search and training; only `full` is reported to a person."""

    verify = "verify"
    quick = "quick"
    full = "full"


class Stage(str, Enum):
    """The stages of an evaluation, in order; an evaluation stops at the first failure."""

    screen = "screen"
    compile = "compile"
    verify = "verify"
    profile = "profile"


class Outcome(str, Enum):
    """The result of an evaluation. Every outcome but `correct` names its failure."""

    refused = "refused"  # the screen saw something that is not allowed
    compile_error = "compile_error"
    crashed = "crashed"  # the runner died: signal or CUDA error
    hung = "hung"  # no answer within the time limit; killed
    out_of_memory = "out_of_memory"
    incorrect = "incorrect"  # values, unwritten elements, a mutated input, a write out of bounds
    nondeterministic = "nondeterministic"  # repeat runs differ
    cheating = "cheating"  # outputs that differ while the candidate is timed, or an impossible speed
    inconclusive = "inconclusive"  # four implausible measurements, by other work on the machine or by cheating
    correct = "correct"


class Baseline(Record, frozen=True, kw_only=True):
    """Times of the reference in milliseconds; `compile_ms` is None until `torch.compile` has been measured.

    `floor_ms` is the roofline (a lower bound of the time), 0 if the device's bandwidth is unknown.
    """

    eager_ms: float
    compile_ms: float | None
    floor_ms: float


class Diagnostic(Record, frozen=True, kw_only=True):
    """One message of a compiler or of the screen. `line` is 1-based, 0 where there is none."""

    message: str
    file: str = ""
    line: int = 0
    severity: str = "error"

    @property
    def located(self) -> str:
        """The message, preceded by its file and line."""
        return f"{self.file} L{self.line} {self.message}".strip()


class Mismatch(Record, frozen=True, kw_only=True):
    """The worst of the elements that differ from the reference: its output, its index, its workload, and the value
    `got` against the float64 value `want`. `count` of the output's `total` elements failed.

    JSON has no NaN and no infinity: they come back from a round trip as None.
    """

    output: str
    index: tuple[int, ...]
    got: float | None
    want: float | None
    workload: str
    count: int
    total: int
    why: str = "value"


class Accuracy(Record, frozen=True, kw_only=True):
    """Errors against a float64 run of the reference; each is the worst over all inputs tried.

    `error` is max |candidate - float64|. `reference_error` is that of PyTorch in the task's dtype, under the same
    precision flags; `error_ratio` is `error` over `reference_error` (0/0 is 1). `relative_error` is ‖candidate -
    float64‖₂/‖float64‖₂. `reference` is "f64", or "same dtype" if the module cannot run in float64: PyTorch's error is
    then not known.
    """

    error: float
    reference_error: float
    error_ratio: float
    relative_error: float
    inputs_tried: int
    shapes_tried: int
    bit_reproducible: bool
    reference: str = "f64"


class KernelResources(Record, frozen=True, kw_only=True):
    """The compiler's report about one kernel (CUDA); memory in bytes."""

    symbol: str
    registers: int = 0
    shared_bytes: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0


#: If a call takes more than this multiple of its time in a CUDA graph, the host's launch overhead limits it.
LAUNCH_BOUND = 1.1


def ranked_ms(candidate_ms: float, graph_ms: float | None) -> float:
    """Returns the time in milliseconds by which candidates are compared with each other: `graph_ms` if launching takes
    more than about a tenth of a call, else `candidate_ms`. The time for launching depends on the speed of the host,
    which varies between measurements."""
    return graph_ms if graph_ms is not None and candidate_ms > LAUNCH_BOUND * graph_ms else candidate_ms


class Timing(Record, frozen=True, kw_only=True):
    """Times are medians in milliseconds per call. Speed-ups are baseline time over candidate time, from blocks (several
    timed calls in a row) of both that alternate, with 99.9% intervals (`_ci`).

    `candidate_ms` is the time of a call as a user makes it. `graph_ms` is the time of the same calls in one CUDA graph,
    without the host's launch overhead; it is measured in the quick tier, and None if it was not or cannot be measured.
    `noise` is the candidate's own relative spread between blocks or graphs. `floor_ms` is the roofline (a lower bound
    of the time), `roofline` is `floor_ms` over the candidate's time (0 where unknown). In the quick tier the compile
    baseline may be None.
    """

    candidate_ms: float
    graph_ms: float | None = None
    eager_ms: float
    compile_ms: float | None = None
    speedup_vs_eager: float
    speedup_vs_compile: float | None = None
    speedup_vs_eager_ci: tuple[float, float] | None = None
    speedup_vs_compile_ci: tuple[float, float] | None = None
    floor_ms: float = 0.0
    roofline: float = 0.0
    noise: float = 0.0
    samples: int = 0
    prepare_ms: float = 0.0
    warning: str = ""

    @property
    def ranked_ms(self) -> float:
        """The time in milliseconds by which candidates are compared with each other (see the function `ranked_ms`)."""
        return ranked_ms(self.candidate_ms, self.graph_ms)

    @property
    def vs_eager(self) -> Gain:
        return gain_of(self.speedup_vs_eager, self.speedup_vs_eager_ci)

    @property
    def vs_compile(self) -> Gain:
        return gain_of(self.speedup_vs_compile, self.speedup_vs_compile_ci)

    @property
    def is_clear(self) -> bool:
        """Whether the verdicts against both baselines are clear, so that another measurement would add nothing."""
        return Gain.unclear not in (self.vs_eager, self.vs_compile)


#: Least effect that counts as a difference, whatever the interval says.
LEAST_EFFECT = 1.02


def measurably_faster(speedup: float | None, interval: tuple[float, float] | None) -> bool:
    """Whether a speed-up is certain: its whole 99.9% interval lies above 1, and its estimate is at least
    `LEAST_EFFECT`."""
    return speedup is not None and interval is not None and interval[0] > 1.0 and speedup >= LEAST_EFFECT


def measurably_slower(speedup: float | None, interval: tuple[float, float] | None) -> bool:
    """Whether a slow-down is certain: the whole 99.9% interval lies below 1, and the estimate is at most
    1/`LEAST_EFFECT`."""
    return speedup is not None and interval is not None and interval[1] < 1.0 and speedup <= 1 / LEAST_EFFECT


class Gain(str, Enum):
    """The verdict of the comparison with one baseline, which follows from the speed-up's estimate and its 99.9%
    interval."""

    faster = "faster"
    slower = "slower"
    no_gain = "no_gain"  # the whole interval is below the least effect that counts
    unclear = "unclear"  # the measurements so far allow for a gain and for none
    unknown = "unknown"  # not measured in full


def gain_of(speedup: float | None, interval: tuple[float, float] | None) -> Gain:
    """Returns the verdict for a speed-up with its 99.9% interval; `no_gain` only if the whole interval is below
    `LEAST_EFFECT`."""
    if speedup is None or interval is None:
        return Gain.unknown
    if measurably_faster(speedup, interval):
        return Gain.faster
    if measurably_slower(speedup, interval):
        return Gain.slower
    return Gain.no_gain if interval[1] < LEAST_EFFECT else Gain.unclear


class LaunchTime(Record, frozen=True, kw_only=True):
    """The time that one launch of a plan adds to a call, in ms; `name` is its symbol. If the launch runs alone, it may
    take more or less time."""

    name: str
    ms: float


class Evaluation(Record, frozen=True, kw_only=True):
    """One pass of a candidate through the environment. `seconds` is wall time by stage; `message` is one line for
    people and models.

    `residual` names the operators that PyTorch still runs; if there are any, the result is partial, and
    `share_in_our_kernels` says which part of the time is in our kernels. `launches` are the times of a plan's launches
    in order, if there are several. `sizes` is "declared" if a candidate is correct at the declared sizes only;
    `elsewhere` says how it failed at other sizes.
    """

    candidate: str
    tier: Tier
    outcome: Outcome
    stage: Stage
    message: str
    diagnostics: tuple[Diagnostic, ...] = ()
    mismatch: Mismatch | None = None
    accuracy: Accuracy | None = None
    timing: Timing | None = None
    resources: tuple[KernelResources, ...] = ()
    precision: str = ""
    share_in_our_kernels: float = 1.0
    residual: tuple[str, ...] = ()
    launches: tuple[LaunchTime, ...] = ()
    seconds: dict[str, float] = {}
    sizes: str = "all"
    elsewhere: str = ""

    def __post_init__(self) -> None:
        if self.outcome is Outcome.correct:
            if self.accuracy is None:
                raise ValueError("a correct evaluation carries its accuracy")
            if self.stage is Stage.profile and self.timing is None:
                raise ValueError("a profiled evaluation carries its timing")
        elif self.timing is not None and self.outcome is not Outcome.cheating:
            raise ValueError(f"{self.outcome.value} must not carry a timing")
        if self.outcome is Outcome.compile_error and not self.diagnostics:
            raise ValueError("a compile error carries its diagnostics")
        if self.mismatch is not None and self.outcome not in (
            Outcome.incorrect,
            Outcome.cheating,
            Outcome.nondeterministic,
        ):
            raise ValueError(f"{self.outcome.value} must not carry a mismatch")

    @property
    def correct(self) -> bool:
        return self.outcome is Outcome.correct

    @property
    def correct_everywhere(self) -> bool:
        """Whether the candidate is correct at every size that was tried, not only at the declared sizes."""
        return self.correct and self.sizes == "all"
