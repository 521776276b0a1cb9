"""Candidates that were judged, and episodes of them."""

from __future__ import annotations

from msgspec.structs import replace

from kernel_assistant.records import Evaluation, FreeWin, Outcome, Stage, Step, StopReason, Tier, Timing, Trajectory
from tests.session import tiny_host
from tests.tui.parts import events

QUICK = Timing(candidate_ms=0.777, eager_ms=2.73, speedup_vs_eager=3.52)


def timing(compiled: float | None = 2.0, eager: float = 3.0, spread: float = 0.05) -> Timing:
    """The times of a candidate that takes 1 ms; `spread` is half the width of the intervals."""
    compiled_ci = None if compiled is None else (compiled * (1 - spread), compiled * (1 + spread))
    return Timing(
        candidate_ms=1.0,
        eager_ms=eager,
        compile_ms=compiled,
        speedup_vs_eager=eager,
        speedup_vs_compile=compiled,
        speedup_vs_eager_ci=(eager * (1 - spread), eager * (1 + spread)),
        speedup_vs_compile_ci=compiled_ci,
    )


def correct(figures: Timing, candidate: str = "c", tier: Tier = Tier.full) -> Evaluation:
    """The evaluation of a correct candidate with these times."""
    return replace(events.right(candidate, 1, tier=tier).evaluation, timing=figures, precision="f32")


def wrong(outcome: Outcome, message: str = "no", candidate: str = "c", **fields: object) -> Evaluation:
    """The evaluation of a candidate that is not correct."""
    known = {"outcome": outcome, "message": message, "stage": Stage.verify, "diagnostics": (), **fields}
    return replace(events.wrong(candidate, 1).evaluation, **known)


def tried(turn: int, outcome: Outcome = Outcome.correct, figures: Timing = QUICK, **fields: object) -> Step:
    """A step with one candidate, and its evaluation in the quick tier."""
    step = tiny_host.step(turn)
    name = step.candidates[0].hash()
    right = outcome is Outcome.correct
    judged = correct(figures, name, Tier.quick) if right else wrong(outcome, candidate=name, **fields)
    return replace(step, evaluations=(judged,))


def episode(reason: StopReason, *steps: Step, **fields: object) -> Trajectory:
    known = {"task": "t", "policy": "generator", "seconds": 9.0, **fields}
    return Trajectory(steps=steps, stop_reason=reason, **known)


def win(name: str, speedup: float, spread: float = 0.03, **fields: object) -> FreeWin:
    """A change without a kernel, this many times as fast as torch.compile, except for `fields`."""
    interval = (speedup * (1 - spread), speedup * (1 + spread))
    known = {"speedup_vs_eager": 2 * speedup, "speedup_vs_compile": speedup, "speedup_vs_compile_ci": interval}
    known |= {"ms": 1.0, "error_vs_fp64": 1e-7, "error_ratio": 1.0, "passes": True}
    return FreeWin(name=name, **{"write": f"turn_on({name})", **known, **fields})
