"""A pytest plugin that records how long each file of tests took, to order the next run.

    make test PYTEST_FLAGS="-p bench.suite"
    make test-gpu PYTEST_FLAGS="-p bench.suite"

Tests with a line of their own in the table keep it: they need nothing of the other tests in their file.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.common.order import TABLE, TABLE_GPU, own_lines

#: Files that take less need no line: they start last in any case.
LEAST_SECONDS = 3.0
HEAD = "# Seconds on {}, of files and of tests that need nothing of their file's others.\n"

_seconds: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called for each phase of a test; with pytest-xdist in the process to which the others report."""
    _seconds[report.nodeid.partition("[")[0].partition("@")[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return
    apart = own_lines()
    groups = Counter[str]()
    for test, seconds in _seconds.items():
        groups[test if test in apart else test.partition("::")[0]] += seconds
    times = sorted(((seconds, name) for name, seconds in groups.items()), reverse=True)
    lines = [f"{seconds:.0f} {name}\n" for seconds, name in times if seconds >= LEAST_SECONDS or name in apart]
    gpu = session.config.option.markexpr == "gpu"
    head = HEAD.format("one GPU, eight tests at a time" if gpu else "two cores, four tests at a time")
    (TABLE_GPU if gpu else TABLE).write_text(head + "".join(lines), encoding="utf-8")
