"""Unconfirmed candidates of a job, and gains over eager mode only: what front ends offer for a class, and which job
FILE names.
"""

from __future__ import annotations

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.mcp.jobs import brief
from kernel_assistant.records import Gain, JobOutcome, ProgramMode
from kernel_assistant.records.offer import OVER_EAGER
from kernel_assistant.session.edits import find_job
from kernel_assistant.session.kinds.again import find_unconfirmed, prepare_confirm
from kernel_assistant.session.reporting.applied_state import states_of
from kernel_assistant.session.reporting.class_state import applied_figure
from kernel_assistant.store import JobOptions, JobState
from tests.common.results import best, result
from tests.common.tasks import task_of
from tests.session.conftest import NORM

OPEN = {"plan.json": "/nowhere/plan.json"}


def ended(store, path, state, **fields):
    row = store.add_job(task_of(path, NORM, "Norm"), JobOptions(), "cpu:0")
    store.mark_ended(row.id, state, result=result(**fields))
    return row.id


def state(store, path):
    return states_of(path, NORM, store.jobs_of(str(path)), path.parent)["Norm"]


def test_what_a_cancelled_job_kept_is_offered_until_a_newer_one_has_ended(store, path):
    job = ended(store, path, JobState.cancelled, outcome=JobOutcome.cancelled, artifacts=OPEN)
    assert (state(store, path).unconfirmed, state(store, path).outcome) == (job, "")
    assert find_unconfirmed(store, f"{path}:Norm").id == job
    with pytest.raises(UsageError, match=r"no job of .*Other kept a candidate"):
        find_unconfirmed(store, f"{path}:Other")
    ended(store, path, JobState.done, best=best())
    assert state(store, path).unconfirmed == "" and state(store, path).recommended


def test_what_is_not_clear_is_offered_with_its_outcome(store, path):
    job = ended(store, path, JobState.done, outcome=JobOutcome.inconclusive, best=best(), artifacts=OPEN)
    assert (state(store, path).unconfirmed, state(store, path).outcome) == (job, "inconclusive")
    assert brief(store.job(job).result, job)["next"].startswith(f"confirm {job}: ")


def test_apply_by_file_says_of_which_job_and_what_goes_on(store, path):
    job = ended(store, path, JobState.done, outcome=JobOutcome.inconclusive, best=best(), artifacts=OPEN)
    with pytest.raises(UsageError, match=rf"no job has improved .*; job {job}: .*not clear") as refused:
        find_job(store, str(path))
    assert f"confirm {job} measures it again; or kernel-assistant apply {job} --force" in refused.value.next_step
    job = ended(store, path, JobState.done, outcome=JobOutcome.no_measurable_gain, best=best(), artifacts=OPEN)
    with pytest.raises(UsageError, match=f"job {job}: .*no gain was confirmed") as refused:
        find_job(store, str(path))
    assert refused.value.next_step.startswith(f"kernel-assistant apply {job} --force")


def test_nothing_is_measured_where_nothing_was_kept(store, path):
    job = ended(store, path, JobState.cancelled, outcome=JobOutcome.cancelled)
    with pytest.raises(UsageError, match=f"job {job} has no candidate to measure"):
        prepare_confirm(store, store.job(job))
    assert "Norm" not in states_of(path, NORM, store.jobs_of(str(path)), path.parent)


def test_a_gain_over_eager_alone_is_found_by_file_and_told_with_its_words(store, path):
    figures = best(speedup_vs_eager=1.87, speedup_vs_compile=1.0, speedup_vs_compile_ci=(0.99, 1.01))
    verdicts = {"vs_eager": Gain.faster, "vs_compile": Gain.no_gain, "gain_over": OVER_EAGER}
    verdicts |= {"outcome": JobOutcome.no_measurable_gain, "program": ProgramMode.eager}
    job = ended(store, path, JobState.done, best=figures, **verdicts)
    known = state(store, path)
    assert known.applicable and not known.recommended
    assert known.figure == "1.9× vs eager, no gain vs torch.compile"
    assert find_job(store, str(path)).id == job
    told = brief(store.job(job).result, job)
    assert (told["over_eager"], told["over_torch_compile"], told["program_runs_it"]) == ("faster", "no_gain", "eager")
    assert told["next"].startswith(f"apply {job}: it runs the class without torch.compile")


def test_a_gain_that_was_confirmed_before_the_cancel_is_offered(store, path):
    ended(store, path, JobState.cancelled, outcome=JobOutcome.cancelled, best=best(), gain_over="torch.compile")
    assert state(store, path).applicable and state(store, path).figure == "2.0× vs torch.compile"


@pytest.mark.parametrize(
    ("compiled", "bounds", "words"),
    [
        (1.5, (1.4, 1.6), "1.5× vs torch.compile"),
        (1.0, (0.9, 1.1), "1.9× vs eager, not clear vs torch.compile"),
        (1.0, (0.99, 1.01), "1.9× vs eager, no gain vs torch.compile"),
        (0.5, (0.4, 0.6), "1.9× vs eager, slower than torch.compile"),
        (None, None, "1.9× vs eager"),
    ],
)
def test_an_applied_class_names_what_it_gains_over(compiled, bounds, words):
    timing = {"speedup_vs_eager": 1.87, "speedup_vs_compile": compiled, "speedup_vs_compile_ci": bounds}
    timing |= {"speedup_vs_eager_ci": (1.8, 1.9)}
    assert applied_figure({"numbers": {"timing": timing}}) == words


def test_a_figure_of_the_search_is_not_shown_as_the_gain_of_applied_kernels():
    """As after `apply --force` where the budget ended before the best candidate was measured in full."""
    timing = {"speedup_vs_eager": 0.047, "speedup_vs_compile": None, "speedup_vs_eager_ci": None}
    assert applied_figure({"numbers": {"timing": timing}}) == "gain not confirmed"
