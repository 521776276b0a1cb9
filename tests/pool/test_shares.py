"""Tests which host gets which job, and the effects of losses: bookkeeping with hosts that are names."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from random import Random

import pytest

from kernel_assistant.errors import InternalError
from kernel_assistant.records import Evaluation, Outcome, Stage, Tier
from kernel_assistant_training.evaluation.worker import EvaluationJob
from kernel_assistant_training.ppo.pool.assignment import LEAST_PART, JobAssignment, parts
from kernel_assistant_training.ppo.pool.events import CandidateJudged, JobBegan, JobEnded


@dataclass(frozen=True)
class Room:
    workers: int


@dataclass(frozen=True)
class Name:
    """The part of a host that these tests need."""

    name: str
    greeting: Room


def evaluation(candidate, tier):
    return Evaluation(candidate=candidate.hash(), tier=tier, outcome=Outcome.hung, stage=Stage.verify, message="")


@pytest.fixture(scope="session")
def many(asked):
    """A function: the number of candidates for each of some tasks → jobs. Candidates differ in a comment."""
    right = asked[0][0]

    def candidate(number):
        sources = {name: f"{text}// {number}\n" for name, text in right.candidate.sources.items()}
        return type(right.candidate)(plan=right.candidate.plan, sources=sources, origin="model")

    def make(*counts):
        return [
            EvaluationJob(some[0].task, tuple((candidate(100 * place + number), Tier.quick) for number in range(count)))
            for place, (some, count) in enumerate(zip(itertools.cycle(asked), counts, strict=False))
        ]

    return make


def shares_of(*rooms):
    shares = JobAssignment(itertools.count())
    machines = [Name(f"m{place}", Room(room)) for place, room in enumerate(rooms)]
    for machine in machines:
        shares.join(machine)
    return shares, machines


def test_machines_get_jobs_by_their_workers_and_few_ahead(many):
    shares, (small, large) = shares_of(1, 3)
    shares.add(many(*[1] * 40))
    given = [machine for machine, _, _ in shares.handed()]
    # Each worker one and three ahead: no machine has more in hand, the rest waits here.
    assert (given.count(small), given.count(large)) == (4, 12)
    assert {*given[:4]} == {small, large}, "all have something before anyone has much"
    assert not list(shares.handed()), "nobody has room"


def test_towards_the_end_nothing_is_given_ahead(many):
    shares, _ = shares_of(1, 1, 1)
    shares.add(many(*[1] * 4))
    given = [machine for machine, _, _ in shares.handed()]
    assert sorted(one.name for one in given) == ["m0", "m1", "m2"]
    assert not shares.done


def test_a_job_goes_where_its_task_is_open(many):
    shares, (one, two) = shares_of(1, 1)
    first, second = many(0, 0)
    shares.add([first, second])
    for machine, number, job in list(shares.handed()):
        shares.apply(machine, JobBegan(job=number))
        shares.apply(machine, JobEnded(job=number, why="", open=(job.task.kernel_task.hash(),)))
    assert shares.done
    shares.add([second, first])
    assert [(machine, job.task) for machine, _, job in shares.handed()] == [(one, first.task), (two, second.task)]


def test_many_candidates_of_one_task_are_cut_and_few_are_not(many):
    (job,) = many(100)
    cut = parts([job], 8)
    assert [candidate for one in cut for candidate in one.candidates] == list(job.candidates)
    assert {len(one.candidates) for one in cut[:-1]} == {LEAST_PART} and len(cut) == 13
    assert [len(one.candidates) for one in parts([job], 2)] == [25] * 4
    assert [len(one.candidates) for one in parts(many(5, 3), 128)] == [5, 3]
    assert [len(one.candidates) for one in parts([job], 1)] == [100]


def test_a_task_at_which_two_machines_are_lost_is_given_up(many):
    shares, (one, two, _) = shares_of(1, 1, 1)
    (job,) = many(9)
    shares.add([job])
    for machine in (one, two):
        ((taker, number, rest),) = shares.handed()
        assert taker is machine
        shares.apply(machine, JobBegan(job=number))
        shares.apply(machine, CandidateJudged(job=number, evaluation=evaluation(*rest.candidates[0])))
        shares.lose(machine, "gone")
    assert [found is None for found in job.found] == [False, True, False] + [True] * 6
    assert shares.done and job.why == "gone"
    assert job.tried == 0, "without its task open nothing was judged"
    job.opened = object()
    assert job.tried == 4, "who was never begun lost nobody"


def test_answers_to_something_else_are_refused(many):
    shares, (one,) = shares_of(1)
    job, other = many(1, 1)
    shares.add([job])
    ((_, number, _),) = shares.handed()
    with pytest.raises(InternalError, match="for another candidate"):
        shares.apply(one, CandidateJudged(job=number, evaluation=evaluation(*other.candidates[0])))
    with pytest.raises(InternalError, match="for another candidate"):
        shares.apply(one, CandidateJudged(job=number, evaluation=evaluation(job.candidates[0][0], Tier.full)))
    with pytest.raises(InternalError, match="without all answers"):
        shares.apply(one, JobEnded(job=number, why="", open=()))
    shares.apply(one, CandidateJudged(job=number, evaluation=None))
    with pytest.raises(InternalError, match="more than it was asked"):
        shares.apply(one, CandidateJudged(job=number, evaluation=None))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_lost_every_candidate_has_one_entry(many, seed):
    """Hosts join, die and come back at any moment; messages of a dead host do not count."""
    random = Random(seed)
    shares, machines = shares_of(*(random.randint(1, 3) for _ in range(3)))
    wanted = many(*(random.randint(0, 6) for _ in range(12)))
    jobs = parts(wanted, 6)
    shares.add(jobs)
    hands = {machine: [] for machine in machines}
    void, gone = 0, []
    while not shares.done:
        for machine, number, job in shares.handed():
            hands[machine].append((number, job))
        fate = random.random()
        alive = shares.machines
        if fate < 0.04 and alive:
            machine = random.choice(alive)
            late, hands[machine] = hands[machine], []
            void += shares.lose(machine, "gone")[0]
            gone += [(machine, number, job) for number, job in late]
        elif fate < 0.1 and len(alive) < len(machines):
            shares.join(next(machine for machine in machines if machine not in alive))
        elif fate < 0.2 and gone:
            machine, number, job = random.choice(gone)
            shares.apply(machine, CandidateJudged(job=number, evaluation=None))
        else:
            work(random, shares, hands)
    assert all(len(job.found) == len(job.candidates) for job in jobs)
    assert sum(job.found.count(None) for job in jobs) == void
    for job in jobs:
        for (candidate, _), found in zip(job.candidates, job.found, strict=True):
            assert found is None or found.candidate == candidate.hash()


def work(random, shares, hands):
    """A host completes its first job, or does not."""
    busy = [machine for machine in shares.machines if hands[machine]]
    if not busy:
        return
    machine = random.choice(busy)
    number, job = hands[machine][0]
    shares.apply(machine, JobBegan(job=number))
    for candidate, tier in job.candidates[len(job.found) :]:
        if random.random() < 0.2:
            return
        job.found.append(evaluation(candidate, tier))
        shares.apply(machine, CandidateJudged(job=number, evaluation=job.found[-1]))
    hands[machine].pop(0)
    shares.apply(machine, JobEnded(job=number, why="", open=()))
