"""How fast candidates are evaluated: in the quick tier, which steers search, and in the full tier, which is
reported."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from bench.figures import Figure, Settings
from bench.subjects import norm, norm_environment
from kernel_assistant.environment.session import Environment
from kernel_assistant.records import Candidate, Evaluation, Tier


def measure(settings: Settings) -> list[Figure]:
    target = settings.target
    with norm_environment(target) as environment:
        environment.baseline(compiled=False)
        _timed(environment, [norm(target, -1)], Tier.quick)
        fresh = [norm(target, mark) for mark in range(settings.count(64 if target == "cuda" else 32, 4))]
        seconds, _ = _timed(environment, fresh, Tier.quick)
        again, evaluations = _timed(environment, fresh, Tier.quick)
        single = median([_timed(environment, [each], Tier.quick)[0] for each in fresh[: settings.count(15, 3)]])
        began = time.perf_counter()
        environment.baseline(compiled=True)
        compiled = time.perf_counter() - began
        repeats = settings.count(7, 2)
        full = [_timed(environment, [fresh[0]], Tier.full) for _ in range(repeats)]
    timing = full[-1][1][0].timing
    assert timing is not None
    stages = evaluations[0].seconds
    return [
        Figure(
            "quick evaluations, fresh",
            len(fresh) / seconds,
            "/s",
            f"{len(fresh)} candidates in one call, builds included",
            ("≥", 15) if target == "cuda" else None,
        ),
        Figure("quick evaluations, built before", len(fresh) / again, "/s", "the same ones again"),
        Figure("quick evaluation, one alone", single * 1e3, "ms", "median, built before"),
        Figure("verify in the quick tier", stages["verify"] * 1e3, "ms", "one candidate"),
        Figure("profile in the quick tier", stages["profile"] * 1e3, "ms", "one candidate"),
        Figure("full evaluation", median([each[0] for each in full]), "s", f"median of {repeats}", ("≤", 3)),
        Figure("first measurement of torch.compile", compiled, "s", "compiling included"),
        Figure("noise of the candidate", timing.noise * 100, "%", "between the blocks of the last full evaluation"),
    ]


def _timed(environment: Environment, candidates: Sequence[Candidate], tier: Tier) -> tuple[float, list[Evaluation]]:
    began = time.perf_counter()
    evaluations = environment.evaluate(candidates, tier)
    elapsed = time.perf_counter() - began
    for evaluation in evaluations:
        if not evaluation.correct:
            raise RuntimeError(f"the candidate is {evaluation.outcome.value}: {evaluation.message}")
    return elapsed, evaluations
