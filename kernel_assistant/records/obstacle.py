"""Obstacle: why a job has no result, as `optimize --json` and `show` tell it."""

from __future__ import annotations

from kernel_assistant.records.codec import Record


class Obstacle(Record, frozen=True, kw_only=True):
    """One check that stood between a job and a result.

    `check` is a stage of the judge (screen, compile, verify, profile), with "in full" behind it for a finalist, or what
    ended the job: operators, budget, policy, environment, confirmation, measurement, edited file. `outcome` names the
    failure; `where` is the place in the source or in the values, "" where there is none; `count` candidates of `of`
    failed so. `message` is of the first of them, `next_step` says what to try.
    """

    check: str
    outcome: str
    message: str
    next_step: str
    where: str = ""
    count: int = 0
    of: int = 0
