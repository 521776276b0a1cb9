"""Makes the evaluation of a candidate from the result of a stage, for plans and for free-form candidates."""

from __future__ import annotations

from typing import Any

from kernel_assistant.environment.builds.compile import CompileFailure
from kernel_assistant.records import Accuracy, Diagnostic, Evaluation, Mismatch, Outcome, Stage, Tier, Timing
from kernel_assistant.records.codec import from_builtins


def refused(key: str, tier: Tier, diagnostics: tuple[Diagnostic, ...], message: str = "") -> Evaluation:
    """Returns the evaluation of a candidate that the screen (the first check of its text) refuses. `key` is the
    candidate's hash. Without a `message`, the evaluation has that of the first diagnostic."""
    return Evaluation(
        candidate=key,
        tier=tier,
        outcome=Outcome.refused,
        stage=Stage.screen,
        message=message or diagnostics[0].message,
        diagnostics=diagnostics,
    )


def not_compiled(key: str, tier: Tier, failed: CompileFailure, spent: dict[str, float]) -> Evaluation:
    """Returns the evaluation of a candidate that does not compile. `key` is the candidate's hash; `spent` maps stages
    to seconds."""
    return Evaluation(
        candidate=key,
        tier=tier,
        outcome=Outcome.compile_error,
        stage=Stage.compile,
        message=failed.diagnostics[0].located,
        diagnostics=failed.diagnostics,
        seconds=spent,
    )


def measured(
    key: str, tier: Tier, stage: Stage, answer: dict[str, Any], spent: dict[str, float], **more: Any
) -> Evaluation:
    """Returns the evaluation for the worker's `answer` to a verify or profile request. `key` is the candidate's hash;
    `stage` is the last stage that ran; `spent` maps stages to seconds; `more` has further fields of the evaluation."""
    outcome = Outcome(answer["outcome"])
    correct = outcome is Outcome.correct
    mismatch, timing = answer.get("mismatch"), answer.get("timing")
    return Evaluation(
        candidate=key,
        tier=tier,
        outcome=outcome,
        stage=stage,
        message=answer["message"],
        mismatch=from_builtins(mismatch, Mismatch) if mismatch else None,
        accuracy=from_builtins(answer["accuracy"], Accuracy) if correct else None,
        timing=from_builtins(timing, Timing) if correct and timing else None,
        seconds=spent,
        sizes=answer.get("sizes", "all") if correct else "all",
        elsewhere=answer.get("elsewhere", "") if correct else "",
        **more,
    )
