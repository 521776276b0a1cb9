"""Event logs of real jobs on the CPU target, and single events to fold."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.events import AnyEvent, CandidateEvaluated, decode_event
from kernel_assistant.records import Diagnostic, Evaluation, Outcome, Stage, Tier, Timing
from kernel_assistant_tui.view.folding import fold
from kernel_assistant_tui.view.search_view import SearchView
from tests.common.results import accuracy_of

#: `optimize` of examples/gated_rms_norm.py by the generator.
GENERATOR = Path(__file__).parent / "generator_episode.jsonl"
#: `optimize` of a chain of pointwise operators by the shipped model, eight conversations, then by the generator.
MODEL = Path(__file__).parent / "model_episode.jsonl"


def events_of(log: Path) -> list[AnyEvent]:
    return [decode_event(line) for line in log.read_bytes().splitlines()]


def folded(events: list[AnyEvent], job: str = "1") -> SearchView:
    return fold(SearchView(job=job), *events)


def timing(ms: float, *, eager: float = 4.0, compiled: float | None = 2.0) -> Timing:
    return Timing(
        candidate_ms=ms,
        eager_ms=eager,
        compile_ms=compiled,
        speedup_vs_eager=eager / ms,
        speedup_vs_compile=None if compiled is None else compiled / ms,
        floor_ms=0.5,
        roofline=0.5 / ms,
    )


ACCURACY = accuracy_of(error=1e-6, reference_error=2e-6, error_ratio=0.5, relative_error=1e-7)


def right(candidate: str, turn: int, ms: float = 1.0, *, tier: Tier = Tier.quick, compiled: float | None = 2.0):
    measured = {"accuracy": ACCURACY, "timing": timing(ms, compiled=compiled), "tier": tier}
    evaluation = Evaluation(
        candidate=candidate, outcome=Outcome.correct, stage=Stage.profile, message="correct", **measured
    )
    return CandidateEvaluated(turn=turn, schedule="rows", origin="generator", evaluation=evaluation)


def wrong(candidate: str, turn: int, *, tier: Tier = Tier.quick, errors: int = 1):
    told = tuple(Diagnostic(message=f"error {n}", file="kernel.cpp", line=n + 3) for n in range(errors))
    failed = {"outcome": Outcome.compile_error, "stage": Stage.compile, "message": "it does not compile"}
    evaluation = Evaluation(candidate=candidate, tier=tier, diagnostics=told, **failed)
    return CandidateEvaluated(turn=turn, schedule="", origin="model", evaluation=evaluation)
