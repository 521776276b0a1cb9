"""Computes the reward of an episode, by pure functions of `Evaluation`s.

An evaluation in the quick tier can earn 1 at most; `Reward` rejects a larger value that does not come from the full
tier. The scheme "milestone" is that of arXiv:2602.24286, here called "the paper".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernel_assistant.records import Candidate, Evaluation, Outcome, Tier, Timing
from kernel_assistant.records.codec import Record

INCORRECT, CORRECT = -1.0, 1.0
#: The smallest speed-up that counts as faster.
FASTER = 1.05
#: Bounds of a speed-up in a reward: one wrong measurement must not outweigh a batch.
SLOWEST, FASTEST = 0.1, 10.0


class Reward(Record, frozen=True, kw_only=True):
    """The reward `value` of a candidate under `scheme`, for an evaluation in `tier`. `correct`, `timed` and the
    speed-ups are those of the evaluation; a speed-up that was not measured is 0."""

    scheme: str
    value: float
    candidate: str
    tier: Tier
    correct: bool
    timed: bool = False
    speedup_vs_eager: float = 0.0
    speedup_vs_compile: float = 0.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError("a reward is a number")
        if self.value > CORRECT and not (self.correct and self.timed and self.tier is Tier.full):
            raise ValueError(f"a reward of {self.value:.3g} needs the full protocol")
        if self.value > 0 and not self.correct:
            raise ValueError("what is wrong earns nothing")


@dataclass(frozen=True)
class Weights:
    """The weights of the scheme "weighted": the reward for correctness, the reward for each doubling of speed, and the
    costs of using all registers (255 per thread), all shared memory (227 KiB per block) and 16 KiB of code.
    """

    correctness: float = 1.0
    speed: float = 1.0
    registers: float = 0.1
    shared: float = 0.1
    code: float = 0.1


#: Of compute capability 9.0: CUDA C++ Programming Guide, table of technical specifications.
REGISTERS, SHARED_BYTES = 255, 227 << 10
CODE_BYTES = 16 << 10
#: A correct evaluation and the bytes of its sources → its reward, before it is limited by the tier.
Worth = Callable[[Evaluation, int], float]


def milestone(evaluation: Evaluation, code_bytes: int) -> float:
    """Returns 1 for a correct candidate; 2 if it is also 5% faster than eager PyTorch; 3 if it is also 5% faster than
    `torch.compile`. The interval of the speed-up must also lie above 1: among many equally fast candidates, some
    measure 5% faster by chance."""
    timing = evaluation.timing
    if timing is None or not _faster(timing.speedup_vs_eager, timing.speedup_vs_eager_ci):
        return CORRECT
    return 3.0 if _faster(timing.speedup_vs_compile or 0.0, timing.speedup_vs_compile_ci) else 2.0


def _faster(speedup: float, interval: tuple[float, float] | None) -> bool:
    return speedup >= FASTER and (interval is None or interval[0] > 1.0)


def ratio(evaluation: Evaluation, code_bytes: int) -> float:
    """Returns the speed-up over `torch.compile`, as in the paper's ablation. If that is unknown: the speed-up over
    eager, or 1 without times. The result is limited to `SLOWEST` … `FASTEST`."""
    eager, compiled = speedups(evaluation.timing)
    return min(max(compiled or eager or CORRECT, SLOWEST), FASTEST)


def correctness(evaluation: Evaluation, code_bytes: int) -> float:
    return CORRECT


@dataclass(frozen=True)
class Weighted:
    """The scheme "weighted": the reward for correctness, plus that for the doublings of speed over the faster of eager
    and `torch.compile`, minus the costs of GPU resources and code."""

    weights: Weights = Weights()

    def __call__(self, evaluation: Evaluation, code_bytes: int) -> float:
        weights = self.weights
        measured = [one for one in speedups(evaluation.timing) if one]
        speed = math.log2(min(max(min(measured), SLOWEST), FASTEST)) if measured else 0.0
        registers = max((one.registers for one in evaluation.resources), default=0) / REGISTERS
        shared = max((one.shared_bytes for one in evaluation.resources), default=0) / SHARED_BYTES
        cost = weights.registers * registers + weights.shared * shared + weights.code * code_bytes / CODE_BYTES
        # A right candidate stays better than a wrong one, however slow and large.
        return max(weights.correctness + weights.speed * speed - cost, 0.0)


#: Whether it is enough to be right at the declared sizes. KernelBench tests one size, and so do the paper's milestones,
#: its ablation and mere correctness; "weighted" is for kernels that replace a module.
DECLARED_SIZES_SUFFICE: Mapping[str, bool] = {
    "milestone": True,
    "ratio": True,
    "weighted": False,
    "correctness": True,
}
SCHEMES: Mapping[str, Worth] = {
    "milestone": milestone,
    "ratio": ratio,
    "weighted": Weighted(),
    "correctness": correctness,
}


def speedups(timing: Timing | None) -> tuple[float, float]:
    """Returns the speed-ups over eager and over `torch.compile`; a speed-up that was not measured is 0."""
    if timing is None:
        return 0.0, 0.0
    return timing.speedup_vs_eager, timing.speedup_vs_compile or 0.0


def reward(evaluation: Evaluation, scheme: str, code_bytes: int = 0) -> Reward:
    """Returns the reward of one evaluation. A candidate with residual calls gets the same reward as a wrong candidate,
    as in the paper. Raises ValueError for an inconclusive evaluation, which has no reward; its episode is void."""
    if evaluation.outcome is Outcome.inconclusive:
        raise ValueError("an inconclusive evaluation has no reward")
    right = (
        evaluation.correct if DECLARED_SIZES_SUFFICE[scheme] else evaluation.correct_everywhere
    ) and not evaluation.residual
    worth = SCHEMES[scheme](evaluation, code_bytes) if right else INCORRECT
    proven = evaluation.tier is Tier.full and evaluation.timing is not None
    eager, compiled = speedups(evaluation.timing)
    return Reward(
        scheme=scheme,
        value=worth if proven else min(worth, CORRECT),
        candidate=evaluation.candidate,
        tier=evaluation.tier,
        correct=right,
        timed=evaluation.timing is not None,
        speedup_vs_eager=eager,
        speedup_vs_compile=compiled,
    )


def highest_tier(scheme: str, clock: str) -> Tier:
    """Returns the highest tier in which a reward scheme needs evaluations. With the `clock` "nominal" no timed tier is
    needed."""
    if needs_full(scheme):
        return Tier.full
    return Tier.verify if clock == "nominal" else Tier.quick


def needs_full(scheme: str) -> bool:
    """Whether an evaluation in the full tier can change a reward; for the scheme "correctness" the quick tier is
    enough."""
    return scheme != "correctness"


def faster_than_eager(rewards: Sequence[Reward]) -> float | None:
    """Returns the share of rewards whose candidate is correct and 5% faster than eager; None if there are correct
    candidates and none was timed."""
    return _share(rewards, lambda one: one.speedup_vs_eager >= FASTER)


def faster_than_compile(rewards: Sequence[Reward]) -> float | None:
    """Returns the share of rewards whose candidate is correct and 5% faster than `torch.compile`; None if the scheme
    does not measure that, or if there are correct candidates and none was timed."""
    if not any(needs_full(one.scheme) for one in rewards):
        return None
    return _share(rewards, lambda one: one.speedup_vs_compile >= FASTER)


def _share(rewards: Sequence[Reward], fast: Callable[[Reward], bool]) -> float | None:
    """Returns the share of rewards with a correct candidate for which `fast` holds. Correct candidates that were not
    timed count with the share of those that were."""
    correct = [one for one in rewards if one.correct]
    timed = [one for one in correct if one.timed]
    if not timed:
        return None if correct else 0.0
    return sum(map(fast, timed)) / len(timed) * len(correct) / len(rewards)


def of_episode(
    judged: Sequence[tuple[Candidate, Evaluation]], scheme: str, confirmed: Evaluation | None = None
) -> Reward:
    """Returns the highest reward among an episode's evaluations; −1 without a candidate. If the best candidate was
    evaluated in the full tier (`confirmed`), only that evaluation counts: a kernel that is correct in the quick tier
    and wrong in the full tier is wrong."""
    sizes = {one.hash(): sum(len(text.encode()) for text in one.sources.values()) for one, _ in judged}
    evaluations = [confirmed] if confirmed is not None else [evaluation for _, evaluation in judged]
    rewards = [reward(one, scheme, sizes.get(one.candidate, 0)) for one in evaluations]
    nothing = Reward(scheme=scheme, value=INCORRECT, candidate="", tier=Tier.quick, correct=False)
    return max(rewards, key=lambda one: one.value, default=nothing)
