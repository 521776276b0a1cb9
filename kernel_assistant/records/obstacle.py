"""Obstacle: a reason why a job has no result, as `optimize --json` and `show` report it."""

from __future__ import annotations

from kernel_assistant.records.codec import Record


class Obstacle(Record, frozen=True, kw_only=True):
    """One check because of which a job has no result.

    `check` is a stage of the judge (screen, compile, verify, profile), followed by "in full" for an evaluation in the
    full tier, or the thing that ended the job: operators, budget, policy, environment, confirmation, measurement,
    edited file. `outcome` names the failure; `where` is the line of the source or the element of an output that failed,
    "" if there is none. `count` of `of` candidates failed in this way; `message` is that of the first one. `next_step`
    says what to try.
    """

    check: str
    outcome: str
    message: str
    next_step: str
    where: str = ""
    count: int = 0
    of: int = 0
