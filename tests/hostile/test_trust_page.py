"""The page about trust: which check refused an attack, what counts as getting through, and whether it is up to date."""

from __future__ import annotations

import csv

import pytest

from bench import trust
from bench.verdicts import Label, Row
from kernel_assistant.records import Outcome, Tier
from tests.common.tasks import task_of
from tests.hostile import freeform_attacks, plan_attacks
from tests.hostile import plan_process_attacks as process_attacks
from tests.hostile import plan_value_attacks as value_attacks

TASK = task_of("solution.py", "", "Model")


def label(source: str, outcome: Outcome, message: str = "") -> Label:
    return Label(source=source, candidate="import torch\n", outcome=outcome, message=message)


def found(*labels: Label) -> list[trust.Finding]:
    return list(trust.findings([Row(task=TASK, labels=labels)]))


@pytest.mark.parametrize(
    ("outcome", "message", "check"),
    [
        (Outcome.cheating, "answered before it was asked", "tickets"),
        (Outcome.cheating, "other values while timed: out0[3] got 0 want 1", "values while timed"),
        (Outcome.incorrect, "out[3] got 0 want 1", "comparison with float64"),
        (Outcome.hung, "no answer within 10 s; killed", "limit of time"),
        (Outcome.refused, "", "screen"),
    ],
)
def test_the_check_is_named(outcome: Outcome, message: str, check: str) -> None:
    (one,) = found(label("cheat: some", outcome, message))
    assert one.check == check and not one.got_through


def test_a_correct_cheat_got_through_and_a_denied_one_gained_nothing() -> None:
    cheat, denied = found(label("cheat: some", Outcome.correct), label("denied: some", Outcome.correct))
    assert cheat.got_through and not denied.got_through and denied.check == trust.NO_GAIN
    text = trust.page([cheat, denied], ([], 3), "cpu", {"CPU": "c", "cores": "2", "torch": "2", "load average": "0"})
    assert "**1 got through**: cheat: some" in text and "**3 honest controls, 0 accused**" in text


def test_an_honest_control_that_is_not_correct_is_accused() -> None:
    row = Row(task=TASK, labels=(label("honest: a", Outcome.correct), label("honest: b", Outcome.hung)))
    accused, count = trust.accused([row])
    assert [one.source for one in accused] == ["honest: b"] and count == 2


def test_the_tracked_table_has_every_attack_and_none_got_through() -> None:
    with open(trust.DOCS / "benchmarks/trust-cpu.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    suites = [
        *(plan_attacks.QUICK, plan_attacks.FULL, plan_attacks.HARMLESS, plan_attacks.HIDDEN),
        *(process_attacks.QUICK, process_attacks.HARMLESS, process_attacks.PAST_THE_SCREEN),
        *(value_attacks.FULL, *value_attacks.QUICK.values(), *value_attacks.HARMLESS.values()),
        *(freeform_attacks.QUICK, freeform_attacks.FULL),
    ]
    assert {name for suite in suites for name in suite} <= {row["attack"] for row in rows}
    assert [row["attack"] for row in rows if row["outcome"] == "correct" and row["check"] != trust.NO_GAIN] == []
    assert {row["tier"] for row in rows} == {Tier.quick.value, Tier.full.value}
