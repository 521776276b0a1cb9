"""Makes the evaluation of a candidate from what a stage has found, for plans and for free-form candidates."""

from __future__ import annotations

from typing import Any

from kernel_assistant.environment.builds.compile import CompileFailure
from kernel_assistant.records import Accuracy, Diagnostic, Evaluation, Mismatch, Outcome, Stage, Tier, Timing
from kernel_assistant.records.codec import from_builtins


def refused(key: str, tier: Tier, diagnostics: tuple[Diagnostic, ...], message: str = "") -> Evaluation:
    """The evaluation of a candidate that the screen refuses; the message is the first objection's by default."""
    return Evaluation(
        candidate=key,
        tier=tier,
        outcome=Outcome.refused,
        stage=Stage.screen,
        message=message or diagnostics[0].message,
        diagnostics=diagnostics,
    )


def not_compiled(key: str, tier: Tier, failed: CompileFailure, spent: dict[str, float]) -> Evaluation:
    """The evaluation of a candidate that the compiler refuses."""
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
    """The evaluation from the worker's `answer`, of which `stage` was the last; `more` are other fields."""
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
