"""Trajectory: everything that happened in one episode, with the reason why it stopped."""

from __future__ import annotations

from enum import Enum

from kernel_assistant.records.candidate import Candidate
from kernel_assistant.records.codec import Record
from kernel_assistant.records.evaluation import Evaluation


class StopReason(str, Enum):
    """Why an episode ended; each episode has exactly one stop reason."""

    finished = "finished"  # the policy has nothing more to try
    target_reached = "target_reached"  # the wanted speed-up is confirmed
    at_roofline = "at_roofline"  # the best is within 5% of what the device allows
    at_limit = "at_limit"  # the reference is already that fast, so nothing was tried
    turns = "turns"
    tokens = "tokens"  # a model used all tokens that it may use, or its conversation no longer fits into the context
    money = "money"  # what the job may spend is spent, or does not pay another request
    wall_time = "wall_time"
    unverified = "unverified"  # the budget ended before the best candidate was verified and measured in full
    device_time = "device_time"
    no_progress = "no_progress"
    cancelled = "cancelled"
    policy_broken = "policy_broken"
    unsupported = "unsupported"  # no policy can write this graph
    environment_broken = "environment_broken"  # worker or device lost and not recovered


class Step(Record, frozen=True, kw_only=True):
    """One turn: the policy's message and candidates, and their evaluations. Times in seconds since the episode
    began."""

    turn: int
    message: str
    candidates: tuple[Candidate, ...]
    evaluations: tuple[Evaluation, ...]
    started: float
    ended: float

    def __post_init__(self) -> None:
        if len(self.candidates) != len(self.evaluations):
            raise ValueError("a step has one evaluation for each candidate")


class Trajectory(Record, frozen=True, kw_only=True):
    """The record of a finished episode.

    `best` is the hash of the best candidate that passed the full tier, None if there is none; `final` is the evaluation
    in the full tier that decided this. `unsupported` lists why policies could write no kernel for the graph. `in_full`
    lists all evaluations in the full tier. `broken` is the error that ended a policy or the environment, "" if none
    did; `next_step` says what the user can do about it.
    """

    task: str
    policy: str
    steps: tuple[Step, ...]
    stop_reason: StopReason
    seconds: float
    best: str | None = None
    final: Evaluation | None = None
    unsupported: tuple[str, ...] = ()
    in_full: tuple[Evaluation, ...] = ()
    broken: str = ""
    next_step: str = ""
