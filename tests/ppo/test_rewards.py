"""The rewards of candidates by their evaluations; no reward above 1 without the full tier."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_assistant.records import Evaluation, KernelResources, Outcome, Stage, Tier, Timing
from kernel_assistant_training.ppo.rewards import (
    DECLARED_SIZES_SUFFICE,
    INCORRECT,
    SCHEMES,
    Reward,
    Weighted,
    Weights,
    faster_than_compile,
    faster_than_eager,
    highest_tier,
    needs_full,
    of_episode,
    reward,
)
from tests.common.results import accuracy_of
from tests.judge.kernels import numbered

RIGHT = accuracy_of(inputs_tried=1, shapes_tried=1)


def judged(outcome=Outcome.correct, tier=Tier.full, eager=None, compiled=None, **fields):
    if eager:
        timing = Timing(candidate_ms=1.0, eager_ms=eager, speedup_vs_eager=eager, speedup_vs_compile=compiled)
        fields |= {"timing": timing, "stage": Stage.profile}
    fields = {"stage": Stage.verify, "message": "", **fields}
    accuracy = RIGHT if outcome is Outcome.correct else None
    return Evaluation(candidate="c", tier=tier, outcome=outcome, accuracy=accuracy, **fields)


@pytest.mark.parametrize(
    ("scheme", "found", "expected"),
    [
        ("milestone", judged(Outcome.incorrect), -1),
        ("milestone", judged(Outcome.crashed, tier=Tier.quick), -1),
        ("milestone", judged(Outcome.cheating, eager=9.0, compiled=9.0), -1),
        ("milestone", judged(eager=0.5, compiled=0.4), 1),
        ("milestone", judged(eager=1.04, compiled=2.0), 1),
        ("milestone", judged(eager=1.05, compiled=1.04), 2),
        ("milestone", judged(eager=3.0, compiled=None), 2),
        ("milestone", judged(eager=1.06, compiled=1.05), 3),
        ("milestone", judged(), 1),
        ("milestone", judged(tier=Tier.quick, eager=9.0, compiled=9.0), 1),
        ("milestone", judged(eager=9.0, compiled=9.0, residual=("mul(x0, x0)",)), -1),
        ("ratio", judged(Outcome.incorrect), -1),
        ("ratio", judged(eager=3.0, compiled=1.7), 1.7),
        ("ratio", judged(eager=3.0), 3.0),
        ("ratio", judged(eager=0.5, compiled=0.25), 0.25),
        ("ratio", judged(eager=900.0, compiled=900.0), 10),
        ("ratio", judged(tier=Tier.quick, eager=3.0, compiled=1.7), 1),
        ("ratio", judged(tier=Tier.quick, eager=0.5), 0.5),
        ("ratio", judged(), 1),
    ],
)
def test_milestones_and_ratios(scheme, found, expected):
    assert reward(found, scheme).value == expected


@pytest.mark.parametrize(
    ("eager", "compiled", "expected"),
    [((1.02, 1.1), (1.01, 1.1), 3), ((1.02, 1.1), (0.99, 1.1), 2), ((0.99, 1.1), (1.01, 1.1), 1)],
)
def test_luck_earns_no_milestone(eager, compiled, expected):
    found = judged(eager=1.06, compiled=1.06)
    timing = msgspec.structs.replace(found.timing, speedup_vs_eager_ci=eager, speedup_vs_compile_ci=compiled)
    assert reward(msgspec.structs.replace(found, timing=timing), "milestone").value == expected


def test_weighted_rewards_pay_for_doublings_and_charge_for_resources():
    scheme = Weighted(Weights(correctness=1, speed=0.5, registers=0.2, shared=0.4, code=0.8))
    small = KernelResources(symbol="a", registers=51)
    large = KernelResources(symbol="b", registers=7, shared_bytes=227 << 9)
    found = judged(eager=4.0, compiled=2.0, resources=(small, large))
    assert scheme(found, 4096) == pytest.approx(1 + 0.5 * 1 - 0.2 * 0.2 - 0.4 * 0.5 - 0.8 * 0.25)
    # However slow and large it is, it is worth more than a wrong one.
    assert scheme(judged(eager=0.01, compiled=0.01), 1 << 20) == 0 > reward(judged(Outcome.incorrect), "weighted").value


def test_correctness_needs_no_clock():
    assert reward(judged(tier=Tier.quick), "correctness").value == reward(judged(eager=9.0), "correctness").value == 1
    assert [name for name in SCHEMES if not needs_full(name)] == ["correctness"]
    assert {highest_tier("milestone", "measured"), highest_tier("correctness", "measured")} == {Tier.full, Tier.quick}
    assert highest_tier("correctness", "nominal") is Tier.verify
    verified = judged(tier=Tier.verify)
    assert reward(verified, "correctness").value == reward(verified, "milestone").value == 1


def test_what_is_only_verified_counts_as_fast_as_what_was_timed():
    verified, wrong = judged(tier=Tier.verify), judged(Outcome.incorrect)
    timed = [judged(eager=2.0, compiled=1.2), judged(eager=1.0, compiled=0.5)]
    rewards = [reward(one, "milestone") for one in (*timed, verified, verified, wrong)]
    assert faster_than_eager(rewards) == pytest.approx(0.4) == faster_than_compile(rewards)
    assert faster_than_eager(rewards[2:]) is None and faster_than_compile(rewards[2:]) is None
    assert faster_than_eager(rewards[4:]) == 0


@given(
    st.sampled_from(sorted(SCHEMES)),
    st.sampled_from([one for one in Outcome if one is not Outcome.inconclusive]),
    st.sampled_from(Tier),
    st.floats(0.001, 1e4),
    st.none() | st.floats(0.001, 1e4),
    st.booleans(),
    st.integers(0, 1 << 20),
)
def test_more_than_1_is_for_what_the_full_protocol_timed(scheme, outcome, tier, eager, compiled, residual, size):
    timed = outcome in (Outcome.correct, Outcome.cheating)
    fields = {"outcome": outcome.value, "residual": ("mul(x, x)",) if residual else ()}
    fields |= {"diagnostics": ({"message": "m"},)} if outcome is Outcome.compile_error else {}
    fields |= {} if outcome is Outcome.correct else {"accuracy": None}
    fields |= {} if timed else {"timing": None}
    found = msgspec.convert(msgspec.to_builtins(judged(Outcome.correct, tier, eager, compiled)) | fields, Evaluation)
    value = reward(found, scheme, size).value
    assert value == INCORRECT or (outcome is Outcome.correct and not residual)
    assert value <= 1 or tier is Tier.full
    assert -1 <= value <= 10


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_says_whether_the_declared_sizes_suffice(scheme):
    everywhere, declared = judged(eager=4.0, compiled=4.0), judged(eager=4.0, compiled=4.0, sizes="declared")
    paid = reward(everywhere, scheme) if DECLARED_SIZES_SUFFICE[scheme] else reward(judged(Outcome.incorrect), scheme)
    found = reward(declared, scheme)
    assert (found.value, found.correct) == (paid.value, paid.correct)
    assert DECLARED_SIZES_SUFFICE[scheme] == (scheme != "weighted")


def test_what_other_work_disturbed_has_no_reward():
    found = judged(Outcome.inconclusive, stage=Stage.profile, message="odd each time")
    for scheme in SCHEMES:
        with pytest.raises(ValueError, match="has no reward"):
            reward(found, scheme)


@pytest.mark.parametrize(
    "changed",
    [{"tier": Tier.quick}, {"timed": False}, {"correct": False}, {"value": float("nan")}, {"value": float("inf")}],
)
def test_a_reward_that_was_not_earned_cannot_be_made(changed):
    fields = {"scheme": "ratio", "value": 1.5, "candidate": "c", "tier": Tier.full, "correct": True, "timed": True}
    Reward(**fields)
    with pytest.raises(ValueError):  # noqa: PT011 - each has words of its own
        Reward(**(fields | changed))
    if changed.get("value", 1.5) == 1.5:
        # Nor read.
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(fields | changed | {"tier": changed.get("tier", Tier.full).value}, Reward)


def test_an_episode_is_worth_its_best_and_the_full_protocols_word_on_it():
    candidates = numbered(2)
    slow, fast = (
        msgspec.structs.replace(judged(tier=Tier.quick, eager=eager), candidate=one.hash())
        for one, eager in zip(candidates, (0.3, 0.9), strict=True)
    )
    both = list(zip(candidates, (slow, fast), strict=True))
    assert of_episode(both, "ratio").value == 0.9
    assert of_episode(both, "ratio", judged(eager=2.0, compiled=1.5)).value == 1.5
    assert of_episode(both, "ratio", judged(Outcome.incorrect)).value == -1
    assert of_episode([], "milestone").value == -1
