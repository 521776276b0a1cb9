"""What an episode is worth: pure functions of `Evaluation`s.

The quick tier steers and can earn 1 at most. Whatever is above 1 comes from the full protocol: `Reward` cannot be made
otherwise. The scheme "milestone" is the paper's (arXiv:2602.24286).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernel_assistant.records import Candidate, Evaluation, Outcome, Tier, Timing
from kernel_assistant.records.codec import Record

INCORRECT, CORRECT = -1.0, 1.0
#: At least so much faster, for a milestone.
FASTER = 1.05
#: Bounds of a speed-up that counts: one failed clock must not outweigh a batch.
SLOWEST, FASTEST = 0.1, 10.0


class Reward(Record, frozen=True, kw_only=True):
    """`value` of a candidate under `scheme`, earned in `tier`. `correct` and the speed-ups are those of the evaluation;
    0 stands for not measured."""

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
    """Of the scheme "weighted": what correctness and each doubling of speed are worth, and what all registers (255 a
    thread), all shared memory (227 KiB a block) and 16 KiB of code would cost."""

    correctness: float = 1.0
    speed: float = 1.0
    registers: float = 0.1
    shared: float = 0.1
    code: float = 0.1


#: Of compute capability 9.0: CUDA C++ Programming Guide, table of technical specifications.
REGISTERS, SHARED_BYTES = 255, 227 << 10
CODE_BYTES = 16 << 10
#: A correct evaluation and the bytes of its sources → what it is worth before the tier is looked at.
Worth = Callable[[Evaluation, int], float]


def milestone(found: Evaluation, code_bytes: int) -> float:
    """1; 2 where it is 5% faster than eager PyTorch; 3 where it is 5% faster than `torch.compile` as well. Only where
    the interval says that it is faster at all: of many like candidates one is always measured well."""
    timing = found.timing
    if timing is None or not _faster(timing.speedup_vs_eager, timing.speedup_vs_eager_ci):
        return CORRECT
    return 3.0 if _faster(timing.speedup_vs_compile or 0.0, timing.speedup_vs_compile_ci) else 2.0


def _faster(speedup: float, interval: tuple[float, float] | None) -> bool:
    return speedup >= FASTER and (interval is None or interval[0] > 1.0)


def ratio(found: Evaluation, code_bytes: int) -> float:
    """The speed-up over `torch.compile`, as in the paper's ablation; over eager where that is not known."""
    eager, compiled = speedups(found.timing)
    return min(max(compiled or eager or CORRECT, SLOWEST), FASTEST)


def correctness(found: Evaluation, code_bytes: int) -> float:
    return CORRECT


@dataclass(frozen=True)
class Weighted:
    """Correctness, doublings of speed over the faster of eager and `torch.compile`, less what it costs of the GPU."""

    weights: Weights = Weights()

    def __call__(self, found: Evaluation, code_bytes: int) -> float:
        weights = self.weights
        measured = [one for one in speedups(found.timing) if one]
        speed = math.log2(min(max(min(measured), SLOWEST), FASTEST)) if measured else 0.0
        registers = max((one.registers for one in found.resources), default=0) / REGISTERS
        shared = max((one.shared_bytes for one in found.resources), default=0) / SHARED_BYTES
        cost = weights.registers * registers + weights.shared * shared + weights.code * code_bytes / CODE_BYTES
        # What is right stays better than what is wrong, however slow and large.
        return max(weights.correctness + weights.speed * speed - cost, 0.0)


SCHEMES: Mapping[str, Worth] = {
    "milestone": milestone,
    "ratio": ratio,
    "weighted": Weighted(),
    "correctness": correctness,
}


def speedups(timing: Timing | None) -> tuple[float, float]:
    """Over eager and over `torch.compile`; 0 where not measured."""
    if timing is None:
        return 0.0, 0.0
    return timing.speedup_vs_eager, timing.speedup_vs_compile or 0.0


def reward(found: Evaluation, scheme: str, code_bytes: int = 0) -> Reward:
    """Of one evaluation. Calls that stay PyTorch's make it worth what a wrong one is: the paper refuses them. Raises
    ValueError for one that is inconclusive: it has no reward, and its episode is void."""
    if found.outcome is Outcome.inconclusive:
        raise ValueError("an inconclusive evaluation has no reward")
    right = found.correct and not found.residual
    worth = SCHEMES[scheme](found, code_bytes) if right else INCORRECT
    proven = found.tier is Tier.full and found.timing is not None
    eager, compiled = speedups(found.timing)
    return Reward(
        scheme=scheme,
        value=worth if proven else min(worth, CORRECT),
        candidate=found.candidate,
        tier=found.tier,
        correct=right,
        timed=found.timing is not None,
        speedup_vs_eager=eager,
        speedup_vs_compile=compiled,
    )


def needs_full(scheme: str) -> bool:
    """Whether the full protocol can change a reward; correctness alone is the quick tier's to say."""
    return scheme != "correctness"


def faster_than_compile(rewards: Sequence[Reward]) -> float | None:
    """The share that is right and 5% faster than `torch.compile`; None where that was left unmeasured."""
    if not any(needs_full(one.scheme) for one in rewards):
        return None
    return sum(one.correct and one.speedup_vs_compile >= FASTER for one in rewards) / len(rewards)


def of_episode(
    judged: Sequence[tuple[Candidate, Evaluation]], scheme: str, confirmed: Evaluation | None = None
) -> Reward:
    """Of all that an episode had judged; without a candidate −1. `confirmed` is the full protocol's word on its best
    one, and counts alone where there is one: a kernel that is right in the quick tier and wrong in full is wrong."""
    sizes = {one.hash(): sum(len(text.encode()) for text in one.sources.values()) for one, _ in judged}
    found = [confirmed] if confirmed is not None else [evaluation for _, evaluation in judged]
    rewards = [reward(one, scheme, sizes.get(one.candidate, 0)) for one in found]
    nothing = Reward(scheme=scheme, value=INCORRECT, candidate="", tier=Tier.quick, correct=False)
    return max(rewards, key=lambda one: one.value, default=nothing)
