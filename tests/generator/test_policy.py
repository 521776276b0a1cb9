"""Tests the policy over measured results: one schedule first, then refinement around the best, and an end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel_assistant.generator.ir.schedule import Schedule, read_schedule
from kernel_assistant.policy.base import EpisodeView, PolicyAction
from kernel_assistant.policy.generator import BATCH, MOST, GeneratorPolicy
from kernel_assistant.records import Baseline, Candidate, Evaluation, OpGraph, Outcome, Stage, Step, Tier, Timing
from tests.common.results import accuracy_of
from tests.generator.harness import DEVICES, graph_of
from tests.generator.modules import CASES

Cost = Callable[[Schedule], float | None]
FLOOR_MS = 1.0


def _evaluation(candidate: Candidate, ms: float | None) -> Evaluation:
    known = {"candidate": candidate.hash(), "tier": Tier.quick}
    if ms is None:
        return Evaluation(**known, outcome=Outcome.crashed, stage=Stage.verify, message="no")
    accuracy = accuracy_of(error=0, reference_error=0, relative_error=0, inputs_tried=1, shapes_tried=1)
    speedup, roofline = 9.0 / ms, FLOOR_MS / ms
    timing = Timing(candidate_ms=ms, eager_ms=9.0, speedup_vs_eager=speedup, floor_ms=FLOOR_MS, roofline=roofline)
    right = {"outcome": Outcome.correct, "stage": Stage.profile, "message": "ok"}
    return Evaluation(**known, **right, accuracy=accuracy, timing=timing)


def play(graph: OpGraph, target: str, cost: Cost) -> tuple[list[PolicyAction], list[tuple[Schedule, float | None]]]:
    """Plays the policy until it is finished; returns every schedule with its cost."""
    policy = GeneratorPolicy()
    steps: list[Step] = []
    moves: list[PolicyAction] = []
    tried: list[tuple[Schedule, float | None]] = []
    baseline = Baseline(eager_ms=9.0, compile_ms=None, floor_ms=FLOOR_MS)
    for turn in range(100):
        view = EpisodeView(graph, target, DEVICES[target], baseline, tuple(steps), 60.0)
        move = policy.step(view)
        assert policy.step(view) == move
        moves.append(move)
        if move.finished:
            return moves, tried
        schedules = [read_schedule(target, candidate.plan.schedule) for candidate in move.candidates]
        tried += [(schedule, cost(schedule)) for schedule in schedules]
        found = tuple(_evaluation(c, cost(s)) for c, s in zip(move.candidates, schedules, strict=True))
        steps.append(Step(turn=turn, message="", candidates=move.candidates, evaluations=found, started=0.0, ended=1.0))
    raise AssertionError("the policy does not end")


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["pointwise: half", "rows: softmax wide", "cols: rms", "scan: sum"])
def test_one_first_then_batches_without_repeats(name: str, target: str) -> None:
    moves, tried = play(graph_of(CASES[name]), target, lambda schedule: 2.0 + len(schedule.text()) / 100)
    assert len(moves[0].candidates) == 1
    assert all(1 <= len(move.candidates) <= BATCH[target] for move in moves[1:-1])
    schedules = [schedule for schedule, _ in tried]
    assert len(set(schedules)) == len(schedules) <= MOST[target]
    assert moves[-1].finished
    assert not moves[-1].candidates


def test_refinement_climbs_to_the_best_neighbour() -> None:
    """The cost falls with the block size and with `hint`, so that the best schedule is outside the first list."""

    def cost(schedule: Schedule) -> float:
        return 4.0 - schedule["block"] / 1024 - schedule["hint"] - schedule["unroll"] / 8

    _, tried = play(graph_of(CASES["pointwise: half"]), "cuda", cost)
    best = min(tried, key=lambda item: item[1] or 99.0)[0]
    assert (best["block"], best["hint"], best["unroll"]) == (1024, 1, 4)


def test_the_roofline_ends_it() -> None:
    moves, tried = play(graph_of(CASES["rows: softmax wide"]), "cuda", lambda schedule: 1.0)
    assert len(tried) == 1
    assert "100% of the roofline" in moves[-1].message


def test_failures_do_not_stop_it() -> None:
    """If clusters cannot be launched, the other schedules are still tried."""

    def cost(schedule: Schedule) -> float | None:
        return None if dict(schedule.params).get("cluster", 1) > 1 else 2.0

    _, tried = play(graph_of(CASES["rows: softmax wide"]), "cuda", cost)
    assert any(ms is not None for _, ms in tried)
    moves, all_failed = play(graph_of(CASES["rows: softmax wide"]), "cuda", lambda schedule: None)
    assert moves[-1].finished
    assert len(all_failed) > 5


def test_parameters_without_effect_are_left_out() -> None:
    """`hint` has no effect, so after two tries it is not varied any more."""
    _, tried = play(graph_of(CASES["scan: sum"]), "cuda", lambda schedule: 2.0 + schedule["items"])
    pairs = [s for s, _ in tried if s["hint"] == 1]
    assert 0 < len(pairs) < len(tried) / 2


def test_supports_says_why_not() -> None:
    graph = graph_of(CASES["rows: softmax"])
    assert GeneratorPolicy().supports(graph, "cpu") is None
    assert GeneratorPolicy().supports(graph, "tpu") == "target 'tpu'"
