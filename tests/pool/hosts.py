"""Options of hosts, and what they answer."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant_training.evaluation.options import WorkerOptions
from tests.common.caches import IMPOSSIBLE

#: Bandwidths are given: on a busy machine they cannot be measured.
OPTIONS = WorkerOptions("cpu", "", Path(), Path(), builders=2, bandwidths=(IMPOSSIBLE, IMPOSSIBLE))
#: The outcomes of each of the `jobs`.
RIGHT = ["correct", "compile_error"]


def outcomes(job):
    return [one.outcome.value if one else None for one in job.found]


def listening(connect, heard):
    """A connection to the same host; `heard` is called with the host and each answer before the group gets it."""

    def connected(options):
        host = connect(options)
        judge = host.judge

        def both(number, job):
            for answer in judge(number, job):
                heard(host, answer)
                yield answer

        host.judge = both
        return host

    return connected
