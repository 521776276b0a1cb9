"""Nominal times: equal on all machines, no claim of speed, and never rewarded as speed."""

from __future__ import annotations

from itertools import islice

import pytest
from msgspec.structs import replace

from kernel_assistant.agent.report import compact
from kernel_assistant.environment.ceilings import known_ceilings
from kernel_assistant.errors import UsageError
from kernel_assistant.records import Evaluation, Mismatch, Outcome, Stage, Tier, Timing
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.episodes.subject import subjects
from kernel_assistant_training.nominal import BANDWIDTH, nominal_baseline, nominal_times, unbounded
from kernel_assistant_training.ppo.play import PlayOptions
from tests.common.results import accuracy_of


@pytest.fixture(scope="module")
def graph():
    return next(islice(subjects(0, "cpu"), 1)).graph


def evaluation(outcome, stage, message="", **rest):
    return Evaluation(candidate="c", tier=Tier.quick, outcome=outcome, stage=stage, message=message, **rest)


def right(ms):
    timing = Timing(candidate_ms=ms, eager_ms=3.0, speedup_vs_eager=3.0 / ms, floor_ms=0.1, roofline=0.5)
    accuracy = accuracy_of(error=0.0, reference_error=0.0, relative_error=0.0, inputs_tried=1, shapes_tried=1)
    return evaluation(Outcome.correct, Stage.profile, accuracy=accuracy, timing=timing)


def test_a_model_reads_the_same_whatever_was_measured(graph):
    verified = replace(right(0.2), tier=Tier.verify, stage=Stage.verify, timing=None)
    found = [nominal_times(one, graph) for one in (right(0.2), right(1.7), verified)]
    assert found[0] == found[1] == found[2]
    assert compact(found[0], nominal_baseline(graph)).startswith("ok ")


def test_what_the_inputs_of_one_run_gave_is_not_named(graph):
    said = set()
    for want in (-0.265, 1.61):
        values = {"got": 0.0, "want": want, "count": 1, "total": 6, "workload": "normal", "why": "values"}
        mismatch = Mismatch(output="out0", index=(3, 1), **values)
        wrong = evaluation(Outcome.incorrect, Stage.verify, message=f"want {want}", mismatch=mismatch)
        found = nominal_times(wrong, graph)
        assert found.outcome is Outcome.incorrect
        said.add(compact(found, nominal_baseline(graph)))
    assert said == {"wrong values differ"}


def test_nothing_is_faster_on_a_nominal_clock(graph):
    found = nominal_times(right(0.2), graph)
    assert found.correct and found.timing.speedup_vs_eager == 1.0 and found.timing.speedup_vs_compile is None
    wrong = evaluation(Outcome.crashed, Stage.verify)
    assert nominal_times(wrong, graph) == wrong


@pytest.mark.parametrize("scheme", ["milestone", "ratio", "weighted"])
def test_speed_is_not_rewarded_by_it(scheme):
    with pytest.raises(UsageError, match="rewards speed"):
        PlayOptions(scheme=scheme, clock="nominal")
    PlayOptions(scheme="correctness", clock="nominal")


def test_the_judge_has_no_floor_that_a_busy_machine_measured(tmp_path):
    device = detect("cpu")
    known = known_ceilings(device, unbounded("cpu", tmp_path))
    assert known.key == device.key and known.bandwidth_datasheet > 1e14
    assert known.read_bandwidth == known.copy_bandwidth == BANDWIDTH
