"""Tests which worker gets which job, and the effects of losses, with hosts that evaluate nothing."""

from __future__ import annotations

import itertools
import threading
from random import Random

import pytest

from kernel_assistant.errors import DeviceError, HostError, MissingError
from kernel_assistant.records import Evaluation, Outcome, Stage, Tier
from kernel_assistant.targets import cpu
from kernel_assistant_training.evaluation.worker import (
    UNTIMED,
    CandidateJudged,
    EvaluationJob,
    JobFailed,
    OpenedTask,
    TaskOpened,
)
from kernel_assistant_training.ppo.pool.host_group import AHEAD
from kernel_assistant_training.ppo.pool.hosts import HostReady
from kernel_assistant_training.ppo.pool.pool import LEAST_PART, parts


def evaluation(candidate, tier):
    return Evaluation(candidate=candidate.hash(), tier=tier, outcome=Outcome.hung, stage=Stage.verify, message="")


def opened(job):
    return TaskOpened(opened=OpenedTask(job.task.graph, {}, UNTIMED, cpu.facts()))


def judged(job):
    return [CandidateJudged(evaluation=evaluation(candidate, tier)) for candidate, tier in job.candidates]


def right(host, number, job):
    yield opened(job)
    yield from judged(job)


class ScriptedHost:
    """See `EvaluationHost`. `answers` is called with host, worker and job; `given` are (worker, task) of its jobs."""

    hint = "nowhere"

    def __init__(self, name, workers, answers=right, comes_back=False):
        self.name, self.answers, self.comes_back = name, answers, comes_back
        self.greeting = HostReady(workers=workers, device=cpu.facts(), toolkit="", torch="")
        self.given, self.begun, self.closed = [], [], False

    def begin(self, job):
        self.begun.append(job.candidates)

    def judge(self, number, job):
        self.given.append((number, job.task_hash))
        yield from self.answers(self, number, job)

    def restart(self):
        if not self.comes_back:
            raise MissingError(f"{self.name} is gone")

    def close(self):
        self.closed = True


@pytest.fixture
def group(fleet):
    """A function: hosts → their group, and the lines that it reported."""

    def make(*hosts, **options):
        return fleet(*(lambda options, host=host: host for host in hosts), **options)

    return make


@pytest.fixture(scope="session")
def many(asked):
    """A function: the number of candidates for each of some tasks → jobs. Candidates differ in a comment."""
    right = asked[0][0]

    def candidate(number):
        sources = {name: f"{text}// {number}\n" for name, text in right.candidate.sources.items()}
        return type(right.candidate)(plan=right.candidate.plan, sources=sources, origin="model")

    def make(*counts):
        numbers = [range(100 * index, 100 * index + count) for index, count in enumerate(counts)]
        return [
            EvaluationJob(some[0].task, tuple((candidate(number), Tier.quick) for number in those))
            for some, those in zip(itertools.cycle(asked), numbers, strict=False)
        ]

    return make


def run(made, jobs):
    """The (job, index) of each entry that was reported."""
    heard = []
    made.run(jobs, lambda job, index: heard.append((job, index)))
    return heard


def test_every_entry_is_reported_and_in_order(group, many):
    jobs = many(3, 0, 2)
    made, lines = group(ScriptedHost("a", 2), ScriptedHost("b", 1))
    heard = run(made, jobs)
    assert [index for job, index in heard if job is jobs[0]] == [0, 1, 2]
    assert len(heard) == 5 and all(job.opened for job in jobs) and lines == []


def test_a_job_goes_to_the_worker_that_has_its_task_open(group, many):
    hosts = ScriptedHost("a", 2), ScriptedHost("b", 1)
    made, _ = group(*hosts)
    jobs = many(0, 0, 0)
    run(made, jobs)
    before = [sorted(host.given) for host in hosts]
    run(made, [*many(1, 1, 1)[::-1]])
    assert [sorted(host.given) for host in hosts] == [sorted(some * 2) for some in before]


def test_parts_of_a_task_wait_while_others_can_be_opened(group, many):
    together = threading.Barrier(2)

    def in_step(host, number, job):
        together.wait(60)
        yield from right(host, number, job)

    host = ScriptedHost("a", 2, in_step)
    made, _ = group(host)
    run(made, [*many(1), *many(2), many(0, 1)[1], many(0, 2)[1]])
    assert len(set(host.given)) == 2 and len(host.given) == 4, "each task was opened once"


def test_candidates_of_the_next_jobs_are_built_and_some_are_left_for_whoever_is_done_first(group, many):
    for workers in ((1,), (1, 1)):
        free = threading.Event()

        def waits(host, number, job, free=free):
            free.wait(60)
            yield from right(host, number, job)

        hosts = [ScriptedHost(f"host {number}", count, waits) for number, count in enumerate(workers)]
        made, _ = group(*hosts)
        jobs = many(*[1] * 6)
        thread = threading.Thread(target=run, args=(made, jobs))
        thread.start()
        while sum(len(host.given) for host in hosts) < len(hosts):
            free.wait(0.01)
        each, count = AHEAD if len(hosts) == 1 else 1, len(hosts)
        built = [[jobs[n], *jobs[count + n * each : count + (n + 1) * each]] for n in range(count)]
        assert [host.begun for host in hosts] == [[job.candidates for job in some] for some in built]
        free.set()
        thread.join(60)
        assert all(len(job.evaluations) == 1 for job in jobs)


def test_many_candidates_of_one_task_are_cut_and_few_are_not(many):
    (job,) = many(100)
    cut = parts([job], 8)
    assert [candidate for one in cut for candidate in one.candidates] == list(job.candidates)
    assert {len(one.candidates) for one in cut[:-1]} == {LEAST_PART} and len(cut) == 13
    assert [len(one.candidates) for one in parts([job], 2)] == [25] * 4
    assert [len(one.candidates) for one in parts(many(3, 5), 128)] == [5, 3], "the largest first"
    assert [len(one.candidates) for one in parts([job], 1)] == [100]


def falls(host, number, job):
    """Lost at the second candidate."""
    yield from itertools.islice(right(host, number, job), 2)
    raise HostError(f"{host.name}: gone")


def test_a_task_at_which_two_machines_are_lost_is_given_up(group, many):
    (job,) = many(9)
    made, lines = group(*(ScriptedHost(name, 1, falls) for name in "abc"))
    run(made, [job])
    assert [found is None for found in job.evaluations] == [False, True, False] + [True] * 6
    assert job.why == "gone" and job.tried == 4, "who was never begun lost nobody"
    job.opened = None
    assert job.tried == 0, "without its task open nothing was judged"
    assert [line for line in lines if "is lost" in line] == [
        "a is lost: gone; void: 1 evaluation, moves on: 1 task, left: 2 workers",
        "b is lost: gone; void: 6 evaluations, moves on: 0 tasks, left: 1 worker",
    ]


def test_what_a_lost_worker_leaves_goes_to_another_one(group, many):
    def dies(host, number, job):
        if host.greeting.workers == 2 and number == 0:
            yield from [opened(job), CandidateJudged(evaluation=None), JobFailed(why="no torch", lost=True)]
        else:
            yield from right(host, number, job)

    (job,) = many(3)
    host = ScriptedHost("a", 2, dies)
    made, lines = group(host)
    run(made, [job])
    assert [found is None for found in job.evaluations] == [True, False, False] and job.why == ""
    assert lines == ["a: one worker less, 1 left: no torch"] and made.workers == 1 and not host.closed


def test_a_task_that_cannot_be_opened_costs_nobody(group, many):
    def refuses(host, number, job):
        yield JobFailed(why="other graph", lost=False)

    job, host = many(2)[0], ScriptedHost("a", 1, refuses)
    made, lines = group(host)
    run(made, [job])
    assert job.evaluations == [None, None] and job.why == "other graph" and job.tried == 0 and lines == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (lambda job, other: judged(other), "for another candidate"),
        (lambda job, other: [CandidateJudged(evaluation=evaluation(job.candidates[0][0], Tier.full))], "for another"),
        (lambda job, other: [], "without all answers"),
        (lambda job, other: [*judged(job), CandidateJudged(evaluation=None)], "more than it was asked"),
    ],
)
def test_a_host_that_answers_something_else_is_lost(group, many, found, said):
    job, other = many(2, 1)
    made, lines = group(ScriptedHost("a", 1, lambda host, number, rest: iter([opened(rest), *found(job, other)])))
    if said == "more than it was asked":
        run(made, [job])
    else:
        with pytest.raises(DeviceError, match=f"no worker is left to judge: a: it .*{said}") as caught:
            run(made, [job])
        assert caught.value.next_step == "nowhere"
    while not any("not used any more" in line for line in lines):
        threading.Event().wait(0.01)
    assert said in lines[0]


def test_an_unexpected_error_loses_its_host_and_others_go_on(group, many):
    def fails(host, number, job):
        yield opened(job)
        raise ZeroDivisionError("nobody thought of it")

    jobs = many(2, 1)
    made, lines = group(ScriptedHost("a", 1, fails), ScriptedHost("b", 1))
    run(made, jobs)
    assert all(len(job.evaluations) == len(job.candidates) for job in jobs)
    assert any("a is lost: internal ZeroDivisionError: nobody thought of it" in line for line in lines)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_lost_every_candidate_has_one_entry(group, many, seed):
    """Hosts and workers are lost at any moment; hosts come back."""
    random = Random(seed)

    def unsteady(host, number, job):
        for answer in right(host, number, job):
            fate = random.random()
            if fate < 0.04:
                raise HostError("gone")
            if fate < 0.08 and isinstance(answer, CandidateJudged):
                yield CandidateJudged(evaluation=None)
                yield JobFailed(why="no process", lost=True)
                return
            yield answer

    hosts = [ScriptedHost(name, random.randint(1, 3), unsteady, comes_back=True) for name in "abc"]
    made, _ = group(*hosts)
    jobs = parts(many(*(random.randint(0, 6) for _ in range(12))), 6)
    heard = run(made, jobs)
    assert len(set(heard)) == len(heard)
    for job in jobs:
        assert len(job.evaluations) == len(job.candidates)
        for index, ((candidate, _), found) in enumerate(zip(job.candidates, job.evaluations, strict=True)):
            assert found is None or (found.candidate == candidate.hash() and (job, index) in heard)
