"""Options of hosts, and what they answer."""

from __future__ import annotations

from kernel_assistant_training.ppo.pool.events import HostOptions
from tests.common.caches import IMPOSSIBLE

#: Bandwidths are given: on a busy machine they cannot be measured.
OPTIONS = HostOptions(target="cpu", builders=2, copy_bandwidth=IMPOSSIBLE, read_bandwidth=IMPOSSIBLE)
#: The outcomes of each of the `jobs`.
RIGHT = ["correct", "compile_error"]


def outcomes(job):
    return [one.outcome.value if one else None for one in job.found]


def listening(connect, heard):
    """A connection to the same host; `heard` is called with each event after the group has got it."""

    def connected(options, hear):
        def both(host, event):
            hear(host, event)
            heard(host, event)

        return connect(options, both)

    return connected
